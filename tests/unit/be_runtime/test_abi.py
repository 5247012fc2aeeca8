"""What compiled modules and Python share is what the ABI number stands for."""

from __future__ import annotations

import hashlib
import json
import re
from typing import Any

import pytest

from be_runtime.abi import ABI, FFI_CLAIM, OLDEST, check_abi
from be_runtime.call.resolve import PRESENT
from be_runtime.dtypes import ATTR_TYPES
from be_runtime.errors import LoadError
from be_runtime.generate.codegen import Binding
from be_runtime.generate.contents import CONTENTS, LIBRARY, Handlers
from be_runtime.kernels.cuda import describe
from be_runtime.own_files import NATIVE_DIR
from be_runtime.source_text import SourceText
from be_runtime.spec.discovery import discover

RECORDED = {1: "cf7c00474241bdf1"}
"""The hash of what each ABI number covers."""

STATEFUL = "// @BE f ret state\nvoid f(BE::Tensor y, const BE::State<int>& kept) {}"


def covered() -> dict[str, Any]:
    """What compiled modules and Python share."""
    (entry,) = discover([SourceText(name="f", text=STATEFUL)])
    binding = Binding(entry=entry, symbol="SYMBOL", export="f")
    handlers = (binding.handler(allow_cuda_graph=False), binding.handler(allow_cuda_graph=True), binding.instantiate)
    geometry = describe.Geometry((1, 2, 3), (4, 5, 6), 7, (8, 9, 10), is_cooperative=True, batch_axis=2)
    params = (describe.pointer_param(1, 2, 32), describe.array_param(3, 4, 64), describe.scalar_param(b"\1\2"))
    encoded = describe.encode_params(params)
    return {
        "ffi": FFI_CLAIM,
        "files": (LIBRARY, CONTENTS),
        "functions": Handlers._fields,
        "handlers": handlers,
        "absent arrays": PRESENT,
        "attributes": {row.name: (row.attr_type.name, row.attr_parts) for row in ATTR_TYPES.values()},
        "launch": {"kernel": describe.ID_DIGITS, "launch": geometry.encode(), "name": "", "params": encoded},
        "launcher": native_declarations("launcher.cc"),
        "host calls": native_declarations("host_call.cc"),
    }


def native_declarations(name: str) -> list[str]:
    """What a library of our own exports, and the structures that Python fills, in C++ without comments."""
    text = re.sub(r"//.*", "", (NATIVE_DIR / name).read_text(encoding="utf-8"))
    exports = re.findall(r"^BE_EXPORT\s([^{]*)\{", text, re.MULTILINE)
    structures = re.findall(r"^struct (?:be_launch_image|Parameter|Layout) \{[^}]*\}", text, re.MULTILINE)
    assert exports
    assert structures
    return [" ".join(each.split()) for each in (*exports, *structures)]


def test_what_the_number_stands_for_changes_with_it():
    headers = (NATIVE_DIR / "ffi_versions.h").read_text(encoding="utf-8")
    assert "kClaimMajor = {}, kClaimMinor = {};".format(*FFI_CLAIM.split(".")) in headers
    found = covered()
    digest = hashlib.sha256(json.dumps(found, sort_keys=True).encode()).hexdigest()[:16]
    assert RECORDED.get(ABI) == digest, (
        "what compiled modules and Python share has changed: raise ABI in be_runtime/abi.py if modules that were "
        "compiled before no longer work, and record the new hash here; else you did not mean it, unless the change "
        f"is one that they do without. It is now {digest}:\n" + "\n".join(map(str, found.items()))
    )


def test_the_oldest_and_the_own_abi_are_loaded_and_for_others_it_is_said_which_side_to_update():
    check_abi(OLDEST, "spikes")
    check_abi(ABI, "spikes")
    with pytest.raises(LoadError) as caught:
        check_abi(ABI + 1, "spikes")
    assert caught.value.message == f"spikes was made for ABI {ABI + 1}, but this be_runtime has ABI {ABI}"
    assert caught.value.hints == ("update brainevent-toolchain here: pip install --upgrade brainevent-toolchain",)
    with pytest.raises(LoadError, match=f"ABI {OLDEST - 1}, .* and loads {OLDEST} on") as caught:
        check_abi(OLDEST - 1, "spikes")
    assert caught.value.hints == ("build spikes again with this brainevent-toolchain",)
