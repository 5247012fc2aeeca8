"""The scripts for shells, tried in the shells that are here, and the variables for other tools."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

from be_toolchain.cli import main as cli
from be_toolchain.cli.main import render_variables
from be_toolchain.cli.parser import PARTS, SHELLS
from tests.support.machines import SITE, MemorySystem, with_compiler

ROOT = Path(__file__).parents[4]

ASK = {
    "bash": """source ./script
COMP_WORDS=({words}); COMP_CWORD=$((${{#COMP_WORDS[@]}} - 1))
set -- $(complete -p be-toolchain)
"${{@: -2:1}}"; printf '%s\\n' "${{COMPREPLY[@]}}"
""",
    # Only a line editor completes, so a second zsh has one, and notes what is added to its completions.
    "zsh": """cat > setup <<'END'
PS1=; autoload -Uz compinit && compinit -u -D
eval "$(<script)"
compadd() {{
  if [[ ${{@[1,(i)(-|--)]}} != *-[OAD]\\ * ]]; then
    local -a added; builtin compadd -A added "$@"; print -rl -- $added >> offered
  fi
  builtin compadd "$@"
}}
say_done() {{ print :done }}; comppostfuncs=(say_done); bindkey '^I' complete-word; print :ready
END
: > offered
zmodload zsh/zpty; zpty editor zsh -f -i
zpty -w editor 'source ./setup'; zpty -r editor answer '*:ready*'
zpty -n -w editor {typed}$'\\t'; zpty -r editor answer '*:done*'
cat offered
""",
    "fish": """source ./script
complete -C {typed}
""",
}


@pytest.mark.parametrize("shell", [pytest.param(shell, marks=pytest.mark.needs(shell)) for shell in SHELLS])
def test_a_shell_completes_commands_options_their_words_and_versions(shell: str, tmp_path: Path):
    def offered(*words: str) -> list[str]:
        """What the shell offers for the last word."""
        quoted = " ".join(f"'{word}'" for word in ("be-toolchain", *words))
        text = ASK[shell].format(words=quoted, typed=f"'{' '.join(('be-toolchain', *words))}'")
        command = {"bash": ["bash", "--norc"], "zsh": ["zsh", "-f"], "fish": ["fish", "--no-config"]}[shell]
        done = subprocess.run(
            [*command, "-c", text], env=environ, capture_output=True, text=True, check=True, cwd=tmp_path, timeout=60
        )
        assert done.stderr == ""
        return sorted({word for line in done.stdout.splitlines() if (word := line.split("\t")[0])})

    program = tmp_path / "bin" / "be-toolchain"
    program.parent.mkdir()
    program.write_text(f'#!/bin/sh\nPYTHONPATH={ROOT} exec {sys.executable} -m be_toolchain "$@"\n')
    program.chmod(0o755)
    environ = {"PATH": f"{program.parent}:{os.environ['PATH']}", "HOME": str(tmp_path), "TERM": "dumb"}
    script = subprocess.run([program, "completion", shell], env=environ, capture_output=True, check=True).stdout
    (tmp_path / "script").write_bytes(script)

    (tmp_path / "wheels").mkdir()
    (tmp_path / "wheel.txt").touch()
    (tmp_path / "13.file").touch()
    assert offered("in") == ["install"]
    assert offered("which", "cu") == ["cudafe++", "cudart", "cudart-static"]
    assert offered("install", "--into", "") == ["env", "managed"]
    assert offered("install", "--dr") == ["--dry-run"]
    assert [word.rstrip("/") for word in offered("install", "--wheels", "wh")] == ["wheels"]
    assert offered("use", "") == ["none"]
    store = tmp_path / ".local/share/be_toolchain/toolchains"
    for name in ("cuda-13.0.2", "cuda-13.1.0", "zig-0.17.1"):
        (store / name).mkdir(parents=True)
        (store / name / "toolchain.json").touch()
    (store / "cuda-13.5.0").mkdir()
    assert offered("use", "c") == ["cuda-13.0.2", "cuda-13.1.0"]
    assert offered("use", "n") == ["none"]
    assert offered("remove", "z") == ["zig-0.17.1"]
    assert "13.0" in offered("install", "--cuda", "13")
    assert "13.file" not in offered("install", "--cuda", "13")
    assert offered("install", "--cuda", "a") == ["auto"]


@pytest.mark.parametrize("shell", SHELLS)
def test_every_command_is_completed(shell: str, capsys: pytest.CaptureFixture[str]):
    """A zsh asks for names when somebody types, not as it loads the script: a toolchain may be installed later."""
    assert cli.main(["completion", shell]) == 0
    script = capsys.readouterr().out
    assert all(command in script for command in ("doctor", "prune", "completion", *PARTS))
    assert shell != "zsh" or script.count(r"\$(") == script.count("$(") == 2


PIP = f"{SITE}/nvidia/cu13"


def variables(machine: MemorySystem, capsys: pytest.CaptureFixture[str]) -> dict[str, str]:
    cli.main(["env", "--shell", "json"], system=machine)
    named: dict[str, str] = json.loads(capsys.readouterr().out)
    return named


def test_all_that_other_tools_need_which_chooses_the_same_again(capsys: pytest.CaptureFixture[str]):
    machine = with_compiler(CPATH="/opt/include:")
    machine.pip_cu13()
    once = variables(machine, capsys)
    assert once == {
        "CUDA_HOME": PIP,
        "CUDA_PATH": PIP,
        "CUDACXX": f"{PIP}/bin/nvcc",
        "CUDAHOSTCXX": "/usr/bin/g++",
        "NVCC_CCBIN": "/usr/bin/g++",
        "PATH": f"{PIP}/bin:/usr/local/bin:/usr/bin",
        "CPATH": f"{PIP}/include:{PIP}/include/cccl:/opt/include",
        "LIBRARY_PATH": f"{PIP}/lib",
        "CXX": "/usr/bin/g++",
    }
    machine.runfile("/usr/local/cuda")
    machine.environ = {**machine.environ, **once}
    assert variables(machine, capsys) == once


def test_without_cuda(capsys: pytest.CaptureFixture[str]):
    assert cli.main(["env"], system=with_compiler()) == 1
    captured = capsys.readouterr()
    assert captured.out == "export CXX=/usr/bin/g++\n"
    assert "TC201" in captured.err
    assert cli.main(["env"], system=MemorySystem()) == 2


def test_shells_read_back_what_is_printed():
    values = ("/plain", "/with space", "it's", 'a"b', "$HOME `ls` \\n", "a\\'b")
    script = "".join(f'{render_variables((("NAME", value),), "bash")}\nprintf "%s\\n" "$NAME"\n' for value in values)
    done = subprocess.run(["/bin/sh", "-c", script], capture_output=True, text=True, check=True)
    assert done.stdout.splitlines() == list(values)
    assert render_variables((("NAME", "it's a\\b"),), "fish") == "set -gx NAME 'it\\'s a\\\\b';"
