"""The tag of a wheel says what its images need, and an image that needs too much is refused by name."""

from __future__ import annotations

import pytest

from be_runtime.errors import ArgumentError
from be_runtime.ship.hooks.image_needs import Needs
from be_runtime.ship.hooks.platform_tags import parse_policies, platform_tag

ROWS = [
    {
        "name": name,
        "priority": priority,
        "symbol_versions": {"x86_64": {"GLIBC": glibc, "GLIBCXX": libstdcxx}},
        "lib_whitelist": ["libc.so.6", "libz.so.1", *more],
        "blacklist": {"libz.so.1": ["crc_fold_copy"]},
    }
    for name, priority, glibc, libstdcxx, more in (
        ("manylinux_2_34", 58, ["2.2", "2.17", "2.34"], ["3.4", "3.4.29"], ["libmvec.so.1"]),
        ("manylinux_2_17", 80, ["2.2", "2.17"], ["3.4"], []),
        ("manylinux_2_5", 100, ["2.2"], ["3.4"], []),
    )
]
POLICIES = parse_policies(ROWS, "x86_64")


def _needs(*versions: str, libraries: tuple[str, ...] = ("libc.so.6",), **more: object) -> Needs:
    return Needs(libraries, frozenset(versions), **more)  # type: ignore[arg-type]


@pytest.mark.parametrize(
    ("needs", "tag"),
    [
        ([_needs("GLIBC_2.2")], "manylinux_2_5_x86_64"),
        ([_needs("GLIBC_2.2", "GLIBC_2.17"), _needs("GLIBC_2.2")], "manylinux_2_17_x86_64"),
        ([_needs("GLIBC_2.2"), _needs("GLIBCXX_3.4.29")], "manylinux_2_34_x86_64"),
        ([_needs(libraries=("libmvec.so.1",))], "manylinux_2_34_x86_64"),
        ([_needs("GLIBC_2.99")], "linux_x86_64"),
        ([_needs("OTHER_9")], "manylinux_2_5_x86_64"),  # what no policy speaks of
        ([_needs(libraries=("libz.so.1",), undefined=frozenset({"crc_fold_copy"}))], "linux_x86_64"),
        ([_needs(libraries=("libc.musl-x86_64.so.1",))], "linux_x86_64"),
        ([_needs(libraries=("libcublas.so.12",))], "manylinux_2_5_x86_64"),
        ([_needs(run_paths=("$ORIGIN/../libs",))], "manylinux_2_5_x86_64"),
    ],
)
def test_the_platform_with_the_most_systems(needs: list[Needs], tag: str):
    named = {f"modules.m{number}": each for number, each in enumerate(needs)}
    assert platform_tag(named, "x86_64", POLICIES, exclude=["libcublas.so.*"]) == tag


def test_a_library_that_is_not_everywhere_is_refused_with_the_module_and_the_flag():
    with pytest.raises(ArgumentError, match=r"modules.blas of p needs libfoo.so.3.*\n.*-l:libfoo.a instead of -lfoo"):
        platform_tag({"modules.blas of p": _needs(libraries=("libc.so.6", "libfoo.so.3"))}, "x86_64", POLICIES)


def test_a_folder_of_the_build_machine_is_refused_with_the_module_and_the_flag():
    with pytest.raises(ArgumentError, match=r"modules.blas of p looks for libraries in /opt/lib.*\n.*-rpath=/opt/lib"):
        platform_tag({"modules.blas of p": _needs(run_paths=("$ORIGIN", "/opt/lib"))}, "x86_64", POLICIES)
