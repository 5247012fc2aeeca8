"""The platform of a wheel: the oldest systems that its images run on, by the rules of manylinux.

The rules are auditwheel's own file, so that its verdict and the tag are the same.
"""

from __future__ import annotations

import importlib.resources
import json
from collections.abc import Iterable, Mapping, Sequence
from fnmatch import fnmatch
from functools import lru_cache
from typing import Any, NamedTuple

from be_runtime.errors import ArgumentError
from be_runtime.ship.hooks.image_needs import Needs, lacking_extra


class Policy(NamedTuple):
    """Libraries and symbols that all systems of one platform have.

    Parameters
    ----------
    name : str
        The platform without the machine, such as ``"manylinux_2_28"``.
    versions : dict of str to frozenset of str
        Versions of symbols, by what stands before the ``_``.
    libraries : frozenset of str
    lacking : dict of str to frozenset of str
        Symbols of those libraries that not all systems have.
    """

    name: str
    versions: Mapping[str, frozenset[str]]
    libraries: frozenset[str]
    lacking: Mapping[str, frozenset[str]]


def platform_tag(
    needs: Mapping[str, Needs], machine: str, policies: Sequence[Policy], exclude: Sequence[str] = ()
) -> str:
    """Find the platform with the most systems that all images run on. Pure.

    Parameters
    ----------
    needs : dict of str to Needs
        What each image asks for, by the name of what it was made from.
    machine : str
    policies : sequence of Policy
        Those with the most systems first.
    exclude : sequence of str
        Patterns of libraries that are on each system for another reason.

    Returns
    -------
    str
        ``linux_<machine>`` if the images need what no policy has, such as a newer glibc.

    Raises
    ------
    ArgumentError
        An image looks for libraries in folders of the build machine, or needs one that no policy has.

    Examples
    --------
    >>> old = Policy("manylinux_2_17", {"GLIBC": frozenset({"2.17"})}, frozenset({"libc.so.6"}), {})
    >>> platform_tag({"ops": Needs(("libc.so.6",), frozenset({"GLIBC_2.17"}))}, "x86_64", [old])
    'manylinux_2_17_x86_64'
    """
    for name, need in needs.items():
        _refuse_run_paths(name, need)
    if any(library.startswith("libc.musl-") for need in needs.values() for library in need.libraries):
        return f"linux_{machine}"
    known = {library for policy in policies for library in policy.libraries}
    for name, need in needs.items():
        _refuse_libraries(name, [each for each in need.libraries if each not in known and not _matches(each, exclude)])
    fitting = (policy for policy in policies if all(_fits(need, policy, exclude) for need in needs.values()))
    return f"{next((policy.name for policy in fitting), 'linux')}_{machine}"


def _refuse_run_paths(name: str, need: Needs) -> None:
    for path in need.run_paths:
        if not path.startswith(("$ORIGIN", "${ORIGIN}")):
            raise ArgumentError(
                f"{name} looks for libraries in {path}, a folder of the machine that built it",
                hints=(
                    f"take -rpath={path} out of its extra_ldflags",
                    "link a library that lies there into the module, as -l:libfoo.a",
                ),
            )


def _refuse_libraries(name: str, libraries: Sequence[str]) -> None:
    if libraries:
        flag = libraries[0].removeprefix("lib").partition(".so")[0]
        raise ArgumentError(
            f"{name} needs {libraries[0]}, which is not on every Linux",
            hints=(
                f"link it into the module: -l:lib{flag}.a instead of -l{flag}",
                f'or write exclude = ["{libraries[0]}"] if whoever installs the wheel has it loaded',
            ),
        )


def _fits(need: Needs, policy: Policy, exclude: Sequence[str]) -> bool:
    """Return whether each system of a policy has what an image needs."""
    for version in need.versions:
        kind, _, number = version.partition("_")
        if kind in policy.versions and number not in policy.versions[kind]:
            return False
    return all(
        (library in policy.libraries or _matches(library, exclude))
        and not need.undefined & policy.lacking.get(library, frozenset())
        for library in need.libraries
    )


def _matches(library: str, patterns: Iterable[str]) -> bool:
    return any(fnmatch(library, pattern) for pattern in patterns)


def parse_policies(document: Sequence[Mapping[str, Any]], machine: str) -> tuple[Policy, ...]:
    """Read auditwheel's policies for a machine, those with the most systems first. Pure."""
    rows = sorted(document, key=lambda row: -row["priority"])
    return tuple(
        Policy(
            name=row["name"],
            versions={kind: frozenset(numbers) for kind, numbers in row["symbol_versions"][machine].items()},
            libraries=frozenset(row["lib_whitelist"]),
            lacking={library: frozenset(symbols) for library, symbols in row["blacklist"].items()},
        )
        for row in rows
        if machine in row["symbol_versions"]
    )


@lru_cache(maxsize=1)
def read_policies(machine: str) -> tuple[Policy, ...]:
    """Return the policies of the auditwheel that is installed; see `parse_policies`.

    Raises
    ------
    BeRuntimeError
        The extra ``build`` is not installed.
    """
    try:
        text = (importlib.resources.files("auditwheel") / "policy" / "manylinux-policy.json").read_text(
            encoding="utf-8"
        )
    except (ImportError, OSError):
        raise lacking_extra("auditwheel") from None
    return parse_policies(json.loads(text), machine)
