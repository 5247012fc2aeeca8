"""Downloaded CUDA wheels, small stand-ins for them, and fresh environments."""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import pytest

from tests.support.fresh_environments import NO_INDEX, STRANGERS, Environment, make_environment
from tests.support.small_wheels import write_wheels

RELEASE = "cuda-toolkit[nvcc,nvvm,crt,cudart,cccl]==13.0.2"


@pytest.fixture(scope="session")
def wheels(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """One release's wheels, and three of a later one."""
    folder = tmp_path_factory.mktemp("wheels")
    pip = (sys.executable, "-m", "pip", "download", "--no-input", "--quiet", "--dest", str(folder))
    for words in ((RELEASE,), ("--no-deps", *STRANGERS)):
        done = subprocess.run((*pip, *words), capture_output=True, text=True, check=False, timeout=840)
        if done.returncode and any(sign in done.stderr for sign in NO_INDEX):
            pytest.skip("no package index with CUDA wheels can be reached")
        assert done.returncode == 0, done.stderr
    return folder


@pytest.fixture(scope="session")
def small_wheels(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """What `wheels` has, in a few KB each."""
    return write_wheels(tmp_path_factory.mktemp("small"))


@pytest.fixture(scope="session")
def new_environment(tmp_path_factory: pytest.TempPathFactory) -> Callable[..., Environment]:
    """Makes environments, with options of ``python -m venv``."""

    def make(*options: str) -> Environment:
        return make_environment(tmp_path_factory.mktemp("fresh"), *options)

    return make
