"""What goes wrong with builds is said in one line, the last."""

from __future__ import annotations

import pytest

from tests.packaging.docker.conftest import Build
from tests.support.docker import Engine

pytestmark = pytest.mark.xdist_group("docker")


def _said(output: str) -> str:
    """The message at the end: the error, and its hint if it has one."""
    return output[output.rindex("\nerror: ") + 1 :] if "\nerror: " in output else output


def test_an_unknown_base(build: Build):
    built = build("devel", "--base", "be-tests-no-such-image:1")
    assert built.returncode == 1
    assert "the base image be-tests-no-such-image:1 is neither on this machine nor in a registry" in _said(built.output)


def test_a_base_without_a_package_manager_has_no_way_to_python(build: Build, engine: Engine, base: str):
    bare = "be-tests-no-apt"
    recipe = f"FROM {base}\nRUN rm /usr/bin/apt-get\n"
    assert engine("build", "--tag", bare, "-", text_in=recipe, DOCKER_BUILDKIT="1").returncode == 0
    built = build("devel", "--base", bare)
    assert built.returncode == 1
    assert f"the base image {bare} has no apt-get" in _said(built.output)


def test_a_base_whose_python_is_too_old(build: Build, engine: Engine, base: str):
    old = "be-tests-old-python"
    shim = "RUN mkdir -p /usr/local/bin && printf '#!/bin/sh\\ncase $2 in *exit*) exit 1 ;; esac; echo 3.9\\n'"
    recipe = f"FROM {base}\n{shim} > /usr/local/bin/python3 && chmod +x /usr/local/bin/python3\n"
    assert engine("build", "--tag", old, "-", text_in=recipe, DOCKER_BUILDKIT="1").returncode == 0
    built = build("runtime", "--base", old)
    assert built.returncode == 1
    assert f"the base image {old} has Python 3.9; 3.11 or newer is needed" in _said(built.output)


def test_a_base_without_a_shell(build: Build, engine: Engine):
    empty = "be-tests-empty"
    recipe = "FROM scratch\nLABEL empty=yes\n"
    assert engine("build", "--tag", empty, "-", text_in=recipe, DOCKER_BUILDKIT="1").returncode == 0
    built = build("devel", "--base", empty)
    assert built.returncode == 1
    assert f"the base image {empty} has no shell" in _said(built.output)


def test_a_build_with_the_network_off(build: Build):
    built = build("runtime", "--no-cache", "--network", "none")
    assert built.returncode == 1
    assert "builds need the network" in _said(built.output)


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (("--cuda", "wheel"), "CUDA=wheel is not known"),
        (("--jax", "tpu"), "JAX=tpu is not known"),
        (("--cuda", "system"), "has no /usr/local/cuda/bin/nvcc"),
        (("--build-arg", "COLOUR=red"), "--build-arg COLOUR is not known"),
    ],
)
@pytest.mark.usefixtures("devel")
def test_a_wrong_build_argument(build: Build, arguments: tuple[str, ...], message: str):
    built = build("devel", *arguments)
    assert built.returncode == 1
    assert message in _said(built.output)


def test_no_engine(build: Build):
    built = build("devel", DOCKER_HOST="unix:///no/such/socket")
    assert built.returncode == 1
    assert "no Docker engine answers" in _said(built.output)
