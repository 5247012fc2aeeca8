"""The scripts for shells, tried in the shells that are here."""

from __future__ import annotations

import os
import subprocess
import sys
from contextlib import redirect_stdout
from io import StringIO
from pathlib import Path

import pytest

from be_toolchain.cli import main as cli
from be_toolchain.cli.completion import ALSO, FROM_STORE, VERSIONS, list_commands
from be_toolchain.cli.parser import PARTS, SHELLS, build_parser

ROOT = Path(__file__).parents[4]

ASK = {
    "bash": """{script}
COMP_WORDS=({words}); COMP_CWORD=$((${{#COMP_WORDS[@]}} - 1))
_be_toolchain; printf '%s\\n' "${{COMPREPLY[@]}}"
""",
    "zsh": """autoload -Uz compinit && compinit -u -D
{script}
COMP_WORDS=({words}); COMP_CWORD=$((${{#COMP_WORDS[@]}} - 1))
emulate -L sh
_be_toolchain; printf '%s\\n' "${{COMPREPLY[@]}}"
""",
    "fish": """{script}
complete -C '{typed}'
""",
}


def completed(shell: str, folder: Path, *words: str) -> list[str]:
    """What a shell offers for the last word."""
    typed = " ".join(("be-toolchain", *words))
    quoted = " ".join(f"'{word}'" for word in ("be-toolchain", *words))
    (folder / "script").write_text(completion_of(shell))
    text = ASK[shell].format(script=f"source {folder}/script", words=quoted, typed=typed)
    program = folder / "bin" / "be-toolchain"
    program.parent.mkdir(exist_ok=True)
    program.write_text(f'#!/bin/sh\nPYTHONPATH={ROOT} exec {sys.executable} -m be_toolchain "$@"\n')
    program.chmod(0o755)
    environment = {"PATH": f"{program.parent}:{os.environ['PATH']}", "HOME": str(folder)}
    command = {"bash": ["bash", "--norc"], "zsh": ["zsh", "-f"], "fish": ["fish", "--no-config"]}[shell]
    done = subprocess.run(
        [*command, "-c", text], env=environment, capture_output=True, text=True, check=True, cwd=folder
    )
    assert done.stderr == ""
    offered = (line.split("\t")[0] for line in done.stdout.splitlines())
    return sorted(word for word in offered if word and word.startswith(words[-1]))  # zsh leaves that to itself


def completion_of(shell: str) -> str:
    """The script as the command prints it."""
    out = StringIO()
    with redirect_stdout(out):
        assert cli.main(["completion", shell]) == 0
    return out.getvalue()


@pytest.mark.parametrize("shell", [pytest.param(shell, marks=pytest.mark.needs(shell)) for shell in SHELLS])
def test_a_shell_completes_commands_options_and_their_words(shell: str, tmp_path: Path):
    (tmp_path / "wheels").mkdir()
    assert completed(shell, tmp_path, "in") == ["install"]
    assert completed(shell, tmp_path, "which", "cu") == ["cudafe++", "cudart", "cudart-static"]
    assert completed(shell, tmp_path, "install", "--into", "") == ["env", "managed"]
    assert completed(shell, tmp_path, "install", "--dr") == ["--dry-run"]
    assert completed(shell, tmp_path, "install", "--wheels", "wh")[0].rstrip("/") == "wheels"


@pytest.mark.parametrize("shell", [pytest.param(shell, marks=pytest.mark.needs(shell)) for shell in SHELLS])
def test_a_shell_completes_versions(shell: str, tmp_path: Path):
    (tmp_path / "13.file").touch()
    store = tmp_path / ".local/share/be_toolchain/toolchains"
    assert {"none", *completed(shell, tmp_path, "use", "")} <= {"none", "--help"}
    for name in ("cuda-13.0.2", "cuda-13.1.0", "zig-0.17.1"):
        (store / name).mkdir(parents=True)
        (store / name / "toolchain.json").touch()
    (store / "cuda-13.5.0").mkdir()
    assert completed(shell, tmp_path, "use", "c") == ["cuda-13.0.2", "cuda-13.1.0"]
    assert completed(shell, tmp_path, "use", "n") == ["none"]
    assert completed(shell, tmp_path, "remove", "z") == ["zig-0.17.1"]
    offered = completed(shell, tmp_path, "install", "--cuda", "13")
    assert "13.0" in offered
    assert "13.file" not in offered
    assert completed(shell, tmp_path, "install", "--cuda", "a") == ["auto"]


def test_what_is_completed_otherwise_is_in_the_grammar():
    commands = {command.name: command for command in list_commands(build_parser())}
    assert all(option in commands[name].words for name, option in VERSIONS)
    assert set(FROM_STORE) | set(ALSO) <= set(commands)


def test_every_command_is_completed_with_all_its_options():
    commands = {command.name: command for command in list_commands(build_parser())}
    assert {"doctor", "install", "list", "use", "remove", "prune", "which", "env", "completion"} == set(commands)
    assert set(commands["which"].words) == {*PARTS, "--help"}
    assert dict(commands["env"].choices) == {"--shell": (*SHELLS, "json")}
    for name, command in commands.items():
        scripts = [completion_of(shell) for shell in SHELLS]
        assert all(word.removeprefix("--") in script for word in command.words for script in scripts), name


def test_what_which_knows_is_in_the_grammar():
    assert {"cxx", *cli.PARTS} == set(PARTS)
