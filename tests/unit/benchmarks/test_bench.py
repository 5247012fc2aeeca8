from __future__ import annotations

from pathlib import Path

from benchmarks.bench import HERE, child_environment
from benchmarks.rows import row_names


def test_what_would_change_a_measurement_is_kept_from_children():
    environ = {"PATH": "/bin", "BE_COMPILER_LAUNCHER": "ccache", "XLA_FLAGS": "--x", "PYTHONPATH": "/theirs"}
    found = child_environment(environ, Path("/cache"), {"CCACHE_DISABLE": None, "JAX_PLATFORMS": "cpu"})
    assert "BE_COMPILER_LAUNCHER" not in found
    assert "XLA_FLAGS" not in found
    assert "CCACHE_DISABLE" not in found, "a row took it back"
    assert found["PYTHONPATH"] == f"{HERE.parent}:/theirs"
    assert (found["PATH"], found["BE_CACHE_DIR"], found["JAX_PLATFORMS"]) == ("/bin", "/cache", "cpu")


def test_the_readme_says_how_every_row_is_taken():
    readme = (HERE / "README.md").read_text()
    assert [name for name in row_names() if f"| `{name}` |" not in readme] == []
