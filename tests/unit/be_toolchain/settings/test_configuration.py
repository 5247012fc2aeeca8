"""A project's file: where it is looked for, and that a record follows it."""

from __future__ import annotations

from pathlib import Path

import pytest

from be_toolchain import ToolchainRequest, resolve
from be_toolchain.errors import PreferenceError
from be_toolchain.machine.local_system import LocalSystem
from be_toolchain.settings.configuration import KEYS, ConfigurationFile, find_configuration, parse_configuration
from be_toolchain.settings.preferences import parse_preferences
from tests.support.machines import MemorySystem

CUDA = ToolchainRequest(need_cuda=True)
ALL = """
nvcc = "tools/nvcc"
cxx = "g++-13"
host-cxx = "/usr/bin/g++-12"
cuda-home = "cuda"
prefer = ["system", "pip"]
allow-unsupported-compiler = true
remote-cache = "https://cache.example.org"
"""


def parse(text: str, name: str = "be-toolchain.toml"):
    return parse_configuration(ConfigurationFile(path=Path("/project") / name, text=text))


def test_every_key_is_read_and_relative_paths_start_at_the_file():
    found = parse(ALL)
    assert (found.nvcc, found.cxx, found.host_cxx) == ("/project/tools/nvcc", "g++-13", "/usr/bin/g++-12")
    assert (found.cuda_home, found.prefer, found.allow_unsupported_compiler) == (
        "/project/cuda",
        ("system", "pip"),
        True,
    )
    assert found.remote_cache == "https://cache.example.org"
    assert all(f"{key} =" in ALL for key in KEYS)
    assert parse(f"[tool.be-toolchain]{ALL}", "pyproject.toml") == parse_configuration(
        ConfigurationFile(path=Path("/project/pyproject.toml"), text=f"[tool.be-toolchain]{ALL}")
    )


@pytest.mark.parametrize(
    "text",
    [
        "nvcc = 1",
        "prefer = [1]",
        "prefer = 2",
        "cuda-home = []",
        "colour = 1",
        "nvcc =",
        "remote-cache = 1",
        f"nvcc = {'[' * 5000}",
        f"nvcc = {'9' * 5000}",
    ],
)
def test_what_means_nothing_is_refused_with_the_file(text: str):
    with pytest.raises(PreferenceError, match=r"/project/be-toolchain\.toml") as caught:
        parse(text)
    assert caught.value.hints


def test_a_variable_beats_the_file_and_the_file_beats_the_rest():
    wishes = parse(ALL)
    preferences = parse_preferences({"BE_CXX": "clang++", "BE_ALLOW_UNSUPPORTED_COMPILER": "0"}, wishes)
    assert preferences.cxx == ("BE_CXX", "clang++")
    assert preferences.nvcc == ("nvcc in /project/be-toolchain.toml", "/project/tools/nvcc")
    assert not preferences.allow_unsupported_compiler
    assert preferences.groups[:3] == ("path", "system", "pip")
    assert parse_preferences({"CUDA_HOME": "/sw"}, wishes).homes[0] == ("CUDA_HOME", "/sw")
    with pytest.raises(PreferenceError, match="prefer in /project"):
        parse_preferences({}, parse('prefer = ["newest"]'))


def test_a_pyproject_without_the_table_is_passed(tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    inner = tmp_path / "a" / "b"
    inner.mkdir(parents=True)
    (inner / "pyproject.toml").write_text('[project.scripts]\nbe-toolchain = "x"\n')
    (tmp_path / "pyproject.toml").write_text('[tool.other]\n\n[ tool . "be-toolchain" ]\nnvcc = "x"\n')
    monkeypatch.chdir(inner)
    found = find_configuration(LocalSystem())
    assert found is not None
    assert found.path == tmp_path / "pyproject.toml"


def test_no_working_folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    gone = tmp_path / "gone"
    gone.mkdir()
    monkeypatch.chdir(gone)
    gone.rmdir()
    system = LocalSystem()
    assert system.cwd is None
    assert find_configuration(system) is None


def test_a_record_follows_the_file(tmp_path: Path):
    machine = MemorySystem(cwd=Path("/project/pkg"))
    machine.gxx("/usr/bin/g++")
    machine.runfile("/usr/local/cuda")
    machine.runfile("/sw/cuda")

    def root() -> str:
        machine.commands.clear()
        toolkit = resolve(CUDA, system=machine, record_dir=tmp_path).cuda
        assert toolkit is not None
        return str(toolkit.root)

    assert root() == "/usr/local/cuda"
    machine.write("/project/be-toolchain.toml", 'cuda-home = "/sw/cuda"')
    assert root() == "/sw/cuda"
    assert root() == "/sw/cuda"
    assert machine.commands == []
    machine.write("/project/be-toolchain.toml", "")
    assert root() == "/usr/local/cuda"
    del machine.files["/project/be-toolchain.toml"]
    assert root() == "/usr/local/cuda"
    assert machine.commands == []


def test_a_file_that_cannot_be_read_is_not_left_out_without_a_word():
    machine = MemorySystem(cwd=Path("/project/src"))
    machine.write("/project/be-toolchain.toml", 'cxx = "g++-13"')
    machine.unreadable.add("/project/be-toolchain.toml")
    with pytest.raises(PreferenceError, match=r"/project/be-toolchain.toml can't be read") as caught:
        find_configuration(machine)
    assert "chmod +r" in caught.value.hints[0]
    machine.plant("/project/be-toolchain.toml")
    assert find_configuration(machine) is None
