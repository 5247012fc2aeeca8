"""What the functions that control the process print and offer."""

from __future__ import annotations

from pathlib import Path

import be_runtime
from tests.support.runtime import environment, run_python


def test_the_functions_are_also_those_of_config():
    assert be_runtime.config.set_backend is be_runtime.set_backend
    assert be_runtime.config.get_backend("tpu") is None


def test_diagnostics_say_compilers_cache_and_targets(tmp_path: Path):
    done = run_python("import be_runtime; be_runtime.print_diagnostics()", env=environment(BE_CACHE_DIR=str(tmp_path)))
    assert "C++ compiler" in done.stdout
    assert f"cache: {tmp_path}, 0 entries" in done.stdout
    assert "registered targets: none" in done.stdout
