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
from be_toolchain.cli.parser import PARTS, SHELLS

ROOT = Path(__file__).parents[4]

ASK = {
    "bash": """eval "$(be-toolchain completion bash)"
COMP_WORDS=({words}); COMP_CWORD=$((${{#COMP_WORDS[@]}} - 1))
set -- $(complete -p be-toolchain)
"${{@: -2:1}}"; printf '%s\\n' "${{COMPREPLY[@]}}"
""",
    # Only a line editor completes, so a second zsh has one, and notes what is added to its completions.
    "zsh": """cat > setup <<'END'
PS1=; autoload -Uz compinit && compinit -u -D
eval "$(be-toolchain completion zsh)"
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
    "fish": """be-toolchain completion fish | source
complete -C {typed}
""",
}
HERE = [pytest.param(shell, marks=pytest.mark.needs(shell)) for shell in SHELLS]


def completed(shell: str, folder: Path, *words: str) -> list[str]:
    """What a shell offers for the last word."""
    typed = " ".join(("be-toolchain", *words))
    quoted = " ".join(f"'{word}'" for word in ("be-toolchain", *words))
    program = folder / "bin" / "be-toolchain"
    program.parent.mkdir(exist_ok=True)
    program.write_text(f'#!/bin/sh\nPYTHONPATH={ROOT} exec {sys.executable} -m be_toolchain "$@"\n')
    program.chmod(0o755)
    environment = {"PATH": f"{program.parent}:{os.environ['PATH']}", "HOME": str(folder), "TERM": "dumb"}
    command = {"bash": ["bash", "--norc"], "zsh": ["zsh", "-f"], "fish": ["fish", "--no-config"]}[shell]
    text = ASK[shell].format(words=quoted, typed=f"'{typed}'")
    done = subprocess.run(
        [*command, "-c", text], env=environment, capture_output=True, text=True, check=True, cwd=folder, timeout=60
    )
    assert done.stderr == ""
    offered = (line.split("\t")[0] for line in done.stdout.splitlines())
    return sorted({word for word in offered if word})


@pytest.mark.parametrize("shell", HERE)
def test_a_shell_completes_commands_options_and_their_words(shell: str, tmp_path: Path):
    (tmp_path / "wheels").mkdir()
    (tmp_path / "wheel.txt").touch()
    assert completed(shell, tmp_path, "in") == ["install"]
    assert completed(shell, tmp_path, "which", "cu") == ["cudafe++", "cudart", "cudart-static"]
    assert completed(shell, tmp_path, "install", "--into", "") == ["env", "managed"]
    assert completed(shell, tmp_path, "install", "--dr") == ["--dry-run"]
    (folder,) = completed(shell, tmp_path, "install", "--wheels", "wh")
    assert folder.rstrip("/") == "wheels"


@pytest.mark.parametrize("shell", HERE)
def test_a_shell_completes_versions(shell: str, tmp_path: Path):
    (tmp_path / "13.file").touch()
    store = tmp_path / ".local/share/be_toolchain/toolchains"
    assert completed(shell, tmp_path, "use", "") == ["none"]
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


def test_zsh_asks_for_names_when_somebody_types():
    """Not as it loads the script: a toolchain may be installed later."""
    script = completion_of("zsh")
    assert script.count(r"\$(") == script.count("$(") == 2


@pytest.mark.parametrize("shell", SHELLS)
def test_every_command_is_completed(shell: str):
    script = completion_of(shell)
    assert all(command in script for command in ("doctor", "prune", "completion", *PARTS))


def completion_of(shell: str) -> str:
    """The script as the command prints it."""
    out = StringIO()
    with redirect_stdout(out):
        assert cli.main(["completion", shell]) == 0
    return out.getvalue()


def test_only_completion_needs_the_library_that_writes_the_scripts():
    code = (
        "import sys; from be_toolchain.cli import main; main.main(['list', '--names']); print('shtab' in sys.modules)"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True, cwd=ROOT)
    assert done.stdout.splitlines()[-1] == "False"
