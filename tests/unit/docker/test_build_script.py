"""What the script that builds images makes of its arguments, of pip's settings, and of a failed build."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.support.docker import ROOT, load_script

script = load_script("docker/build.py")
DECLARED = script.declared_arguments((ROOT / "docker" / "Dockerfile").read_text())
GIB = 2**30


def test_the_dockerfile_s_arguments_are_found():
    assert {"BASE_IMAGE", "CUDA", "JAX", "PROJECT", "PREBUILD", "ARCHS", "VERSION", "REVISION"} <= DECLARED


def test_every_named_argument_is_one_of_the_dockerfile():
    words = ["aot", "--project", "p", "--prebuild", "k.py", "--archs", "9.0", "--build-arg", "MIN_DRIVER=570"]
    given = script.build_arguments(script.parse_arguments(words))
    script.check_arguments(given, DECLARED)
    assert {"PROJECT=p", "PREBUILD=k.py", "ARCHS=9.0", "MIN_DRIVER=570", "CUDA=wheels", "JAX=cpu"} <= set(given)


@pytest.mark.parametrize(("argument", "message"), [("COLOUR=red", "COLOUR is not known"), ("JAX", "has no value")])
def test_a_wrong_argument_is_refused_before_anything_is_built(argument: str, message: str):
    with pytest.raises(script.BuildProblemError, match=message):
        script.check_arguments([argument], DECLARED)


def test_pip_s_remote_settings_reach_the_build():
    listing = """
:env:.index-url='https://variable.example/simple'
:env:.no-input='1'
global.cert='/etc/ssl/bundle.pem'
global.extra-index-url='file:///srv/wheels https://more.example/simple'
global.find-links='/srv/wheels'
global.index-url='https://file.example/simple'
"""
    settings = script.pip_settings(listing)
    assert settings.certificate == "/etc/ssl/bundle.pem"
    assert settings.config.splitlines() == [
        "[global]",
        "index-url = https://variable.example/simple",
        "extra-index-url = https://more.example/simple",
    ]


def test_without_settings_pip_has_its_defaults():
    assert script.pip_settings("") == ("[global]\n", "")


def test_a_disk_with_room_is_no_problem():
    assert script.space_problem(7 * GIB, 6, "/var/lib/docker") is None


def test_a_full_disk_is_named_with_both_sizes():
    problem = str(script.space_problem(int(1.5 * GIB), 6, "/var/lib/docker"))
    assert "about 6 GiB, and /var/lib/docker has 1.5" in problem
    assert "hint: " in problem


@pytest.mark.parametrize(
    ("output", "meaning"),
    [
        ("#9 0.2 error: CUDA=x is not known\n#9 0.3 hint: it is wheels\n", "CUDA=x is not known\nhint: it is wheels"),
        ("write /var/lib/docker/x: no space left on device", "the engine's disk is full"),
        ("ERROR: pull access denied for x", "the base image x:1 is neither on this machine nor in a registry"),
        ('runc: exec: "/bin/sh": stat /bin/sh: no such file', "the base image x:1 has no shell"),
        ("the --mount option requires BuildKit", "builds without BuildKit"),
    ],
)
def test_a_failed_build_is_explained(output: str, meaning: str):
    assert meaning in script.explain(output, "x:1")


def test_what_is_not_understood_is_not_explained():
    assert script.explain("something else\n", "x:1") is None


def test_no_client_is_no_engine():
    with pytest.raises(script.BuildProblemError, match="no docker on PATH"):
        script.find_engine({"PATH": "/nowhere"})


def test_a_client_without_an_engine_is_passed_over_for_one_that_has_one(tmp_path: Path):
    for name, body in (("old", "exit 1"), ("new", 'echo "20.10.1 20.10.1"')):
        folder = tmp_path / name
        folder.mkdir()
        (folder / "docker").write_text(f"#!/bin/sh\n{body}\n")
        (folder / "docker").chmod(0o755)
    found = script.find_engine({"PATH": f"{tmp_path}/old:{tmp_path}/new"})
    assert found == f"{tmp_path}/new/docker"


def test_a_client_that_cannot_build_says_what_it_lacks(tmp_path: Path):
    (tmp_path / "docker").write_text('#!/bin/sh\n[ "$1" = version ] && echo "28.2.2 20.10.1"\n')
    (tmp_path / "docker").chmod(0o755)
    with pytest.raises(script.BuildProblemError, match="has no buildx"):
        script.find_engine({"PATH": str(tmp_path)})
