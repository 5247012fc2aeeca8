"""The commands ``cache keygen`` and ``cache sign``: keys for entries that others load, and signatures by them."""

from __future__ import annotations

import argparse
import os
from pathlib import Path
from zipfile import is_zipfile

from be_runtime.cli.answer import Answer
from be_runtime.errors import ArgumentError
from be_runtime.sharing.archive import ArchiveError, resigned
from be_runtime.sharing.export_file import ExportWriter, read_export
from be_runtime.sharing.signing import make_keys, read_signer, write_private_key
from be_toolchain.machine.trust.regular_file import open_regular, read_regular

KEY_FILE = Path("be-cache.key")
"""The private key's file, unless one is named."""


def keygen(arguments: argparse.Namespace) -> Answer:
    """Make a pair of keys: the private one in the file `arguments.out`, the public one in the answer.

    Raises
    ------
    ArgumentError
        The file exists or can't be written, or the package cryptography is missing.
    """
    path = Path(arguments.out or KEY_FILE).absolute()  # a setting is read in any working folder
    private, public = make_keys()
    write_private_key(path, private)
    text = (
        f"{path}: the private key, for those who fill a cache: BE_REMOTE_CACHE_PRIVATE_KEY={path}\n"
        f"the public key, for those who read it: BE_REMOTE_CACHE_PUBLIC_KEY={public}"
    )
    return Answer(text, {"private_key_file": str(path), "public_key": public})


def sign(arguments: argparse.Namespace) -> Answer:
    """Sign the export or archive `arguments.file` by the private key in the file `arguments.key`.

    Raises
    ------
    ArgumentError
        One of them is not what it should be, or the package cryptography is missing.
    """
    path: Path = arguments.file
    signer = read_signer(arguments.key, "--key")
    temporary = path.with_name(f".{path.name}.{os.urandom(4).hex()}")
    try:
        with open_regular(path) as opened:
            is_export = is_zipfile(opened)
        if is_export:
            with ExportWriter(path) as file:
                for head, data in read_export(path):
                    file.add(head.digest, resigned(data, signer))
            return _signed(path)
        data = resigned(read_regular(path), signer)
        with temporary.open("xb") as opened:  # through no link, and into no file of somebody else
            opened.write(data)
        temporary.replace(path)
    except ArchiveError as error:
        raise ArgumentError(f"{path} {error}") from None
    except OSError as error:
        temporary.unlink(missing_ok=True)
        raise ArgumentError(f"{path} can't be signed: {error.strerror}") from None
    return _signed(path)


def _signed(path: Path) -> Answer:
    return Answer(f"{path} is signed", {"file": str(path)})
