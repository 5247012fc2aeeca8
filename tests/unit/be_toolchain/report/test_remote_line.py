"""The doctor's line about the remote cache has none of a user's secrets."""

from __future__ import annotations

import pytest

from be_toolchain.cli import main as cli
from tests.support.machines import MemorySystem


@pytest.mark.parametrize(
    ("variable", "value"),
    [
        ("BE_REMOTE_CACHE", "https://user:SECRET@host/k"),
        ("BE_REMOTE_CACHE", "https://user:SECRET?z@host/k"),
        ("BE_REMOTE_CACHE", "https://user:x/SECRET@host/k"),
        ("BE_REMOTE_CACHE", "https://host/k?sig=SECRET"),
        ("BE_REMOTE_CACHE", "s3://KEY:SECRET@bucket/k"),
        ("BE_REMOTE_CACHE_PRIVATE_KEY", "private-ed25519:SECRET"),
    ],
)
@pytest.mark.parametrize("options", [[], ["--json"]])
def test_the_doctor_shows_no_secret(variable: str, value: str, options: list[str], capsys: pytest.CaptureFixture[str]):
    machine = MemorySystem()
    machine.environ = {**machine.environ, variable: value}
    cli.main(["doctor", *options], system=machine)
    shown = capsys.readouterr()
    assert "remote cache" in shown.out or variable in shown.out
    assert "SECRET" not in shown.out + shown.err
