from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from be_runtime.errors import ArgumentError
from be_runtime.settings import Settings
from be_toolchain.rules.runtime_settings import find_bad_settings
from be_toolchain.settings.table import RUNTIME


def test_an_empty_environment_gives_the_defaults():
    assert Settings.from_environ({}) == Settings()
    assert Settings.from_environ({"BE_MAX_JOBS": "", "BE_VERBOSE": "  ", "PATH": "/bin"}) == Settings()


@pytest.mark.parametrize(
    ("variable", "text", "name", "value"),
    [
        ("BE_CACHE_DIR", "/scratch/kernels", "cache_dir", Path("/scratch/kernels")),
        ("BE_CACHE_DIR", "~/kernels", "cache_dir", Path("/home/me/kernels")),
        ("BE_CACHE_DIR", "~", "cache_dir", Path("/home/me")),
        ("BE_CACHE_DIR", "/with space", "cache_dir", Path("/with space")),
        ("BRAINEVENT_CACHE_DIR", "/b", "cache_dir", Path("/b")),
        ("BE_CACHE_MAX_SIZE_MIB", "100", "cache_max_size_mib", 100),
        ("BE_CACHE_MAX_AGE_DAYS", "7", "cache_max_age_days", 7),
        ("BE_COMPUTE_CAPABILITIES", "8.6,sm_90a", "compute_capabilities", "8.6,sm_90a"),
        ("BRAINEVENT_COMPUTE_CAPABILITIES", "90", "compute_capabilities", "90"),
        ("BE_COMPILE_TIMEOUT_S", "2.5", "compile_timeout_s", 2.5),
        ("BRAINEVENT_COMPILE_TIMEOUT", "60", "compile_timeout_s", 60.0),
        ("BE_LOCK_TIMEOUT_S", "10", "lock_timeout_s", 10.0),
        ("BE_MAX_JOBS", " 4 ", "max_jobs", 4),
        ("BE_COMPILER_LAUNCHER", "ccache", "compiler_launcher", ("ccache",)),
        ("BE_COMPILER_LAUNCHER", "'/my tools/sccache' --x", "compiler_launcher", ("/my tools/sccache", "--x")),
        ("BE_VERBOSE", "1", "verbose", True),
        ("BE_VERBOSE", "Yes", "verbose", True),
        ("BE_VERBOSE", "off", "verbose", False),
    ],
)
def test_each_variable_is_read(variable: str, text: str, name: str, value: Any):
    settings = Settings.from_environ({variable: text, "HOME": "/home/me"})
    assert settings == Settings()._replace(**{name: value})


@pytest.mark.parametrize(
    ("variable", "text"),
    [
        ("BE_CACHE_DIR", "~/kernels"),
        ("BE_COMPUTE_CAPABILITIES", "abc"),
        ("BE_COMPUTE_CAPABILITIES", ","),
        ("BRAINEVENT_COMPUTE_CAPABILITIES", "9.0,fast"),
        ("BE_COMPILE_TIMEOUT_S", "soon"),
        ("BE_COMPILE_TIMEOUT_S", "0"),
        ("BE_COMPILE_TIMEOUT_S", "-1"),
        ("BE_COMPILE_TIMEOUT_S", "nan"),
        ("BE_COMPILE_TIMEOUT_S", "inf"),
        ("BRAINEVENT_COMPILE_TIMEOUT", "x"),
        ("BE_LOCK_TIMEOUT_S", "x"),
        ("BE_MAX_JOBS", "0"),
        ("BE_MAX_JOBS", "-2"),
        ("BE_MAX_JOBS", "1.5"),
        ("BE_MAX_JOBS", "²"),
        ("BE_COMPILER_LAUNCHER", "'ccache"),
        ("BE_VERBOSE", "maybe"),
    ],
)
def test_a_malformed_value_names_its_variable(variable: str, text: str):
    with pytest.raises(ArgumentError) as caught:
        Settings.from_environ({variable: text})
    assert caught.value.message.startswith(f"{variable} is {text!r}, expected ")
    assert [error.message for error in find_bad_settings({variable: text})] == [caught.value.message]


def test_a_variable_wins_over_its_alias():
    environ = {"BE_CACHE_DIR": "/a", "BRAINEVENT_CACHE_DIR": "/b"}
    assert Settings.from_environ(environ).cache_dir == Path("/a")
    assert Settings.from_environ({**environ, "BE_CACHE_DIR": ""}).cache_dir == Path("/b")


def test_the_environment_is_not_changed():
    environ = {"BE_CACHE_DIR": "~/x", "HOME": "/h"}
    Settings.from_environ(environ)
    assert environ == {"BE_CACHE_DIR": "~/x", "HOME": "/h"}


def test_each_setting_has_a_row_of_the_table():
    assert tuple(RUNTIME) == Settings._fields
