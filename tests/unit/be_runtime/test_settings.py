from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from be_runtime.errors import ArgumentError
from be_runtime.settings import Settings
from be_toolchain.rules.runtime_settings import find_bad_settings
from be_toolchain.settings.table import RUNTIME

READ: dict[str, dict[str, dict[str, Any]]] = {
    "cache_dir": {
        "BE_CACHE_DIR": {text: Path(text) for text in ("/scratch/kernels", "/with space")},
        "BRAINEVENT_CACHE_DIR": {"/b": Path("/b"), "~/kernels": Path("/home/me/kernels"), "~": Path("/home/me")},
    },
    "cache_max_size_mib": {"BE_CACHE_MAX_SIZE_MIB": {"100": 100}},
    "cache_max_age_days": {"BE_CACHE_MAX_AGE_DAYS": {"7": 7}},
    "compute_capabilities": {
        "BE_COMPUTE_CAPABILITIES": {"8.6,sm_90a": "8.6,sm_90a"},
        "BRAINEVENT_COMPUTE_CAPABILITIES": {"90": "90"},
    },
    "compile_timeout_s": {"BE_COMPILE_TIMEOUT_S": {"2.5": 2.5}, "BRAINEVENT_COMPILE_TIMEOUT": {"60": 60.0}},
    "lock_timeout_s": {"BE_LOCK_TIMEOUT_S": {"10": 10.0}},
    "max_jobs": {"BE_MAX_JOBS": {" 4 ": 4}},
    "compiler_launcher": {
        "BE_COMPILER_LAUNCHER": {"ccache": ("ccache",), "'/my tools/sccache' --x": ("/my tools/sccache", "--x")}
    },
    "verbose": {"BE_VERBOSE": {"1": True, "Yes": True, "off": False}},
}


@pytest.mark.parametrize("name", READ)
def test_each_variable_is_read(name: str):
    for variable, texts in READ[name].items():
        for text, value in texts.items():
            settings = Settings.from_environ({variable: text, "HOME": "/home/me"})
            assert settings == Settings()._replace(**{name: value})


@pytest.mark.parametrize(
    ("variable", "texts"),
    [
        ("BE_CACHE_DIR", ["~/kernels"]),
        ("BE_COMPUTE_CAPABILITIES", ["abc", ","]),
        ("BRAINEVENT_COMPUTE_CAPABILITIES", ["9.0,fast"]),
        ("BE_COMPILE_TIMEOUT_S", ["soon", "0", "-1", "nan", "inf"]),
        ("BRAINEVENT_COMPILE_TIMEOUT", ["x"]),
        ("BE_LOCK_TIMEOUT_S", ["x"]),
        ("BE_MAX_JOBS", ["0", "-2", "1.5", "²"]),
        ("BE_COMPILER_LAUNCHER", ["'ccache"]),
        ("BE_VERBOSE", ["maybe"]),
    ],
)
def test_a_malformed_value_names_its_variable(variable: str, texts: list[str]):
    for text in texts:
        with pytest.raises(ArgumentError) as caught:
            Settings.from_environ({variable: text})
        assert caught.value.message.startswith(f"{variable} is {text!r}, expected ")
        assert [error.message for error in find_bad_settings({variable: text})] == [caught.value.message]


def test_an_empty_environment_gives_the_defaults_and_a_variable_wins_over_its_alias():
    assert tuple(RUNTIME) == Settings._fields
    assert Settings.from_environ({}) == Settings()
    assert Settings.from_environ({"BE_MAX_JOBS": "", "BE_VERBOSE": "  ", "PATH": "/bin"}) == Settings()
    environ = {"BE_CACHE_DIR": "/a", "BRAINEVENT_CACHE_DIR": "/b"}
    assert Settings.from_environ(environ).cache_dir == Path("/a")
    assert Settings.from_environ({**environ, "BE_CACHE_DIR": ""}).cache_dir == Path("/b")
    environ = {"BE_CACHE_DIR": "~/x", "HOME": "/h"}
    Settings.from_environ(environ)
    assert environ == {"BE_CACHE_DIR": "~/x", "HOME": "/h"}, "it is not changed"
