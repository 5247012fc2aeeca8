from __future__ import annotations

import json
from pathlib import Path

from be_runtime.errors import ArgumentError
from be_runtime.settings import Settings
from be_toolchain.find.coherence import find_bad_settings
from be_toolchain.settings import RUNTIME

GOLDEN = (Path(__file__).parent / "golden" / "settings.txt").read_text(encoding="utf-8")


def read(environ: dict[str, str]) -> str:
    """What an environment sets, or why it is refused."""
    try:
        found = Settings.from_environ(environ)
    except ArgumentError as error:
        return error.message
    changes = zip(Settings._fields, found, Settings(), strict=True)
    return ", ".join(f"{name} = {value!r}" for name, value, usual in changes if value != usual) or "the defaults"


def test_each_variable_is_read_or_named_with_what_is_expected():
    environs = [json.loads(line) for line in GOLDEN.splitlines()[::2]]
    found = "".join(f"{json.dumps(each, ensure_ascii=False)}\n  {read(each)}\n" for each in environs)
    assert found == GOLDEN
    for each in environs:
        doctor = "".join(error.message for error in find_bad_settings(each))
        assert doctor == (read(each) if ", expected " in read(each) else "")
    assert tuple(RUNTIME) == Settings._fields
    assert "secret" not in "".join(GOLDEN.splitlines()[1::2])
