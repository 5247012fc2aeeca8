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
        *("nvcc = 1", "prefer = [1]", "prefer = 2", "cuda-home = []", "colour = 1", "nvcc =", "remote-cache = 1"),
        *(f"nvcc = {'[' * 5000}", f"nvcc = {'9' * 5000}"),
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


@pytest.mark.parametrize(("text", "allowed"), [("1", True), ("on", True), ("No", False), (" ", False), ("maybe", None)])
def test_a_switch_of_the_search_is_read_like_any_other(text: str, allowed: bool | None):
    environ = {"BRAINEVENT_ALLOW_UNSUPPORTED_COMPILER": text}
    if allowed is not None:
        assert parse_preferences(environ).allow_unsupported_compiler is allowed
        return
    says = "BRAINEVENT_ALLOW_UNSUPPORTED_COMPILER is 'maybe', expected 1, true, yes"
    with pytest.raises(PreferenceError, match=says):
        parse_preferences(environ)


TABLE = '[tool.be-toolchain]\ncxx = "g++-13"\n'


@pytest.mark.parametrize(
    ("inner", "found_above"),
    [
        ('[project.scripts]\nbe-toolchain = "x"\n', True),
        (f'[project]\ndescription = """\n{TABLE}"""\n', True),
        (f'note = """\n{TABLE}"""\n{TABLE}', False),
        (f'note = """\n{TABLE}', None),
    ],
)
def test_a_pyproject_without_the_table_is_passed(
    inner: str, found_above: bool | None, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
):
    """What reads like the table inside a text is none."""
    (tmp_path / "a" / "b").mkdir(parents=True)
    (tmp_path / "a" / "b" / "pyproject.toml").write_text(inner)
    (tmp_path / "pyproject.toml").write_text('[tool.other]\n\n[ tool . "be-toolchain" ]\ncxx = "g++-13"\n')
    monkeypatch.chdir(tmp_path / "a" / "b")
    found = find_configuration(LocalSystem())
    assert found is not None
    if found_above is None:
        with pytest.raises(PreferenceError, match="is no TOML"):
            parse_configuration(found)
        return
    assert found.path == (tmp_path if found_above else tmp_path / "a" / "b") / "pyproject.toml"
    assert parse_configuration(found).cxx == "g++-13"


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
