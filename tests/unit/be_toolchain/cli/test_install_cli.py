"""Installing from the command line: asking, refusing, and what the tools behind it are told."""

from __future__ import annotations

import json
import sys
from pathlib import Path

import pytest

from be_toolchain import errors, terminal
from be_toolchain.cli import install_commands
from be_toolchain.cli import main as cli
from be_toolchain.doctor.doctor import examine_machine
from be_toolchain.install import apply, installers
from be_toolchain.machine.system import RunResult
from tests.support.machines import SITE, MemorySystem, with_compiler

PATCHES = {"cuda-nvcc": "88", "nvvm": "88", "cuda-crt": "88", "cuda-runtime": "96", "cuda-cccl": "85"}
VERSIONS = {"cuda-toolkit": "13.0.2"} | {f"nvidia_{name}": f"13.0.{patch}" for name, patch in PATCHES.items()}


def report_of(versions: dict[str, str]) -> str:
    found = {"url": "file:///w/a.whl", "archive_info": {"hashes": {"sha256": "ab"}}}
    rows = [{"name": name, "version": version} for name, version in versions.items()]
    install = [{"metadata": row, "download_info": found} for row in rows]
    return json.dumps({"version": "1", "install": install})


def machine(**environ: str) -> MemorySystem:
    """Its Python's pip reports `VERSIONS`."""
    made = with_compiler(HOME="/home/ada", **environ)

    def python(_: MemorySystem, argv: tuple[str, ...]) -> RunResult:
        return RunResult(argv=argv, returncode=0, stdout="pip 26.0" if "--version" in argv else report_of(VERSIONS))

    made.program("/usr/bin/env", lambda inner, argv: inner.run_one(argv[2:]))
    made.program(sys.executable, python)
    return made


def run(made: MemorySystem, *arguments: str) -> int:
    return cli.main(list(arguments), system=made)


def test_a_dry_run_shows_the_plan_and_runs_nothing_else(capsys: pytest.CaptureFixture[str]):
    made = machine()
    assert run(made, "install", "--into", "managed", "--dry-run", "--json") == 0
    data = json.loads(capsys.readouterr().out)
    assert data["applied"] is False
    assert [wheel["name"] for wheel in data["plans"][0]["wheels"]][1] == "nvidia-nvvm"
    pips = [argv for argv in made.commands if "pip" in argv and "--version" not in argv]
    assert all("--dry-run" in argv for argv in pips)
    assert pips


def test_without_a_person_and_without_yes_nothing_happens(capsys: pytest.CaptureFixture[str]):
    made = machine()
    assert run(made, "install", "--cuda", "13.0", "--into", "managed") == install_commands.NOT_CONFIRMED
    said = capsys.readouterr()
    assert "install CUDA 13.0.2 into the store" in said.out
    assert "pass --yes" in said.err
    assert not any("--target" in argv for argv in made.commands)


def test_cuda_12_is_explained(capsys: pytest.CaptureFixture[str]):
    assert run(machine(), "install", "--cuda", "12.9") == install_commands.FAILED
    assert "TC402" in capsys.readouterr().err
    assert run(machine(), "install", "--cuda", "12.9", "--json") == install_commands.FAILED
    assert json.loads(capsys.readouterr().out)["problem"]["code"] == "TC402"


@pytest.mark.parametrize(
    ("words", "code", "says"),
    [
        ("list", 0, "no managed toolchains"),
        ("use 13.0", install_commands.FAILED, "no managed toolchain '13.0'"),
        ("remove 13.0", install_commands.FAILED, "no managed toolchain '13.0'"),
        ("prune", 0, "nothing to remove"),
        ("use none", 0, ""),
    ],
)
def test_an_empty_store(capsys: pytest.CaptureFixture[str], tmp_path: Path, words: str, code: int, says: str):
    assert run(machine(BE_TOOLCHAINS_DIR=str(tmp_path / "none")), *words.split()) == code
    assert says in "".join(capsys.readouterr())


def test_fix_repairs_what_is_wrong_alone(capsys: pytest.CaptureFixture[str]):
    made = machine()
    assert examine_machine(made).exit_code == 1
    assert run(made, "doctor", "--fix") == install_commands.NOT_CONFIRMED
    assert "install CUDA 13.0.2" in capsys.readouterr().out
    made.runfile("/usr/local/cuda")
    assert run(made, "doctor", "--fix") == 0
    assert "nothing to repair" in capsys.readouterr().out
    with pytest.raises(SystemExit) as caught:
        run(made, "doctor", "--fix", "--json")
    assert caught.value.code == terminal.USAGE_ERROR


def test_the_situation():
    made = machine()
    made.pip_cu13(nvvm="13.5")
    made.write(
        f"{SITE}/jax_cuda13_plugin-0.10.2.dist-info/METADATA",
        'Requires-Dist: nvidia-cuda-runtime>=13.0.48; extra == "with-cuda"\nRequires-Dist: nvidia-cublas>=13.0.0.19\n',
    )
    made.write("/etc/os-release", 'ID=debian\nVERSION_ID="12"\n')
    found = apply.gather_situation(made, site=Path(SITE))
    assert dict(found.present)["nvidia-nvvm"].startswith("13.5")
    assert (found.jax_cuda, found.minimums) == ("13", (("nvidia-cuda-runtime", "13.0.48"),))
    assert (found.distribution, found.is_virtual, found.is_conda, found.interrupted) == ("debian", True, False, "")
    made.write(f"{SITE}/.be-toolchain-installing.json", '{"version": "13.0.2"}')
    assert apply.gather_situation(made, site=Path(SITE)).interrupted == "13.0.2"
    made.write(f"{SITE}/.be-toolchain-installing.json", "")
    assert apply.gather_situation(made, site=Path(SITE)).interrupted == "unknown"


def test_a_store_that_is_named_by_a_relative_path_is_refused(capsys: pytest.CaptureFixture[str]):
    made = machine(BE_TOOLCHAINS_DIR="store")
    for words in ("list", "use 13.0", "install --cuda 13.0 --dry-run"):
        assert run(made, *words.split()) == 1
        assert "BE_TOOLCHAINS_DIR is 'store', which is not an absolute path" in capsys.readouterr().err


def test_pip_then_uv_then_what_to_do():
    made = machine()
    python = Path(sys.executable)
    assert isinstance(installers.find_installer(made, python, None), installers.Pip)
    made.program(sys.executable, lambda _, argv: RunResult(argv=argv, returncode=1, stderr="No module named pip"))
    with pytest.raises(errors.InstallError, match="no pip, and no uv") as caught:
        installers.find_installer(made, python, None)
    assert "ensurepip" in caught.value.hints[0]
    made.program("/usr/bin/uv", lambda _, argv: RunResult(argv=argv, returncode=0, stdout="ziglang==1 \\\n --hash=h\n"))
    found = installers.find_installer(made, python, Path("/w"))
    assert isinstance(found, installers.Uv)


def test_a_report_without_hashes_is_refused():
    text = report_of(VERSIONS).replace("sha256", "md5")
    with pytest.raises(errors.InstallError, match="no SHA-256"):
        installers.parse_pip_report(text, MemorySystem())
    wrong = '{"install": [{"metadata": {"name": "a", "version": "1"}, "download_info": 3}]}'
    for broken in ("", "{}", '{"install": [{}]}', wrong, "[" * 100_000):
        with pytest.raises(errors.InstallError, match="report can't be read"):
            installers.parse_pip_report(broken, MemorySystem())


def test_what_pip_and_uv_answer_is_normalized():
    (found,) = installers.parse_pip_report(report_of({"Nvidia_NVVM": "13.1.0-RC1"}), MemorySystem())
    assert found[:2] == ("nvidia-nvvm", "13.1.0rc1")
    text = """
--index-url https://example.org
torch==2.9.0+cu130 ; sys_platform == 'linux' \\
    --hash=sha256:aa \\
    --hash=sha256:bb
# via x
cuda-toolkit[nvcc]==13.0.2 \\
    --hash=sha256:cc
NVIDIA.Nvvm[a,b]==13.1.0rc1
epoch==1!2.0
floating>=1
other @ https://example.org/other-1.0-py3-none-any.whl
"""
    assert [(wheel.name, wheel.version, wheel.hashes) for wheel in installers.parse_uv_compile(text)] == [
        ("torch", "2.9.0+cu130", ("sha256:aa", "sha256:bb")),
        ("cuda-toolkit", "13.0.2", ("sha256:cc",)),
        ("nvidia-nvvm", "13.1.0rc1", ()),
        ("epoch", "1!2.0", ()),
    ]


def test_what_jax_asks_of_its_environment_in_other_spellings():
    metadata = """Metadata-Version: 2.1
Name: jax-cuda13-plugin
Requires-Dist: nvidia_CUDA.nvcc[x] (<14,>=13.0.0rc1) ; extra == "with-cuda"
Requires-Dist: nvidia-nvvm ~=13.0
Requires-Dist: nvidia-cuda-crt
Requires-Dist: nvidia-cuda-runtime>=1!13.0
Requires-Dist: not a requirement
Requires-Dist: nvidia-cublas>=13.0

Requires-Dist: nvidia-cuda-cccl>=13.0, says the description
"""
    assert apply.parse_minimums(metadata) == (("nvidia-cuda-nvcc", "13.0.0rc1"), ("nvidia-cuda-runtime", "1!13.0"))


def test_wheels_are_found_twice_and_in_other_spellings():
    names = ("nvidia_nvvm-13.0.88.dist-info", "Nvidia.NVVM-13.1.0rc1.dist-info", "~vidia_nvvm-13.0.88.dist-info")
    assert apply.parse_present(names) == (("nvidia-nvvm", "13.0.88"), ("nvidia-nvvm", "13.1.0rc1"))


def test_the_newest_plugin_of_jax_counts_however_it_is_spelt():
    made = machine()
    for name in ("jax_cuda12_plugin-0.6.0", "Jax-Cuda13.Plugin-0.10.2", "jax_cuda_plugin-1.0", "jax_cuda13_pjrt-9.0"):
        made.write(f"{SITE}/{name}.dist-info/METADATA", "Requires-Dist: nvidia-nvvm>=13.0.1\n" if "13" in name else "")
    found = apply.gather_situation(made, site=Path(SITE))
    assert (found.jax_cuda, found.minimums) == ("13", (("nvidia-nvvm", "13.0.1"),))


def test_a_failing_pip_is_quoted():
    made = machine()
    said = "WARNING: x\nERROR: No matching distribution found\n"
    made.program(sys.executable, lambda _, argv: RunResult(argv=argv, returncode=1, stderr=said))
    with pytest.raises(errors.InstallError, match="No matching distribution found") as caught:
        installers.Pip(system=made, python=Path(sys.executable)).resolve("cuda-toolkit", Path("/project"))
    assert "WARNING" not in str(caught.value)
    assert "has no such version" in caught.value.hints[0]


PIP_NONE = "ERROR: No matching distribution found for cuda-toolkit<100,>=99\n"
PIP_RETRIED = "WARNING: Retrying (Retry(total=0)) after connection broken by 'NewConnectionError(...)': /simple/x/\n"
UV_NONE = "error: No solution found when resolving dependencies\n  cause: Because only cuda-toolkit<=13.5.0 is ...\n"
UV_RETRIED = "error: Request failed after 3 retries in 10.7s\n  cause: Failed to fetch: http://index/simple/x/\n"


@pytest.mark.parametrize(
    ("said", "wheels", "hint"),
    [
        (f"ERROR: Could not find a version (from versions: 13.0.3.0)\n{PIP_NONE}", None, "has no such version"),
        (f"ERROR: Could not find a version (from versions: none)\n{PIP_NONE}", None, "without a network"),
        (PIP_RETRIED + PIP_NONE, None, "can't be reached"),
        (PIP_NONE, Path("/w"), "/w lacks a wheel of that version"),
        (UV_NONE, None, "has no such version"),
        (UV_RETRIED, None, "can't be reached"),
        ("ERROR: THESE PACKAGES DO NOT MATCH THE HASHES", None, "without a network"),
    ],
)
def test_no_such_version_and_no_network_are_told_apart(said: str, wheels: Path | None, hint: str):
    assert hint in installers.explain_failure(said, wheels)
