"""Every Python block of the pages that need no GPU runs, and prints what the page says."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.support.docs import run_page
from tests.support.requirements import in_full
from tests.support.runtime import environment, run_python

PAGES = (
    *("README.md", "docs/arg-spec.md", "docs/building.md", "docs/caching.md", "docs/calling.md"),
    *("docs/cpp-api.md", "docs/debugging.md", "docs/errors.md", "docs/exported-programs.md"),
    *("docs/from-brainevent.md", "docs/from-ffi-h.md", "docs/from-jax-tvm-ffi.md", "docs/from-torch.md"),
    *(
        "docs/index.md",
        "docs/live-editing.md",
        "docs/other-compilers.md",
        "docs/profiling.md",
        "docs/reliability.md",
        "docs/settings.md",
    ),
    *("docs/transforms.md", "docs/tuning.md", "docs/tutorial-cpp.md"),
    *(
        "docs/from-cupy.md",
        "docs/from-pallas.md",
        "docs/from-pybind11.md",
        "docs/how-it-works.md",
        "docs/performance.md",
        "docs/troubleshooting.md",
        "docs/why.md",
    ),
)
FIRST = ("README.md", "docs/index.md", "docs/errors.md", "docs/tutorial-cpp.md")
"""What a newcomer reads."""


@pytest.mark.filterwarnings("ignore:kernels was saved, but fails to load")  # docs/live-editing.md
@pytest.mark.filterwarnings("ignore:kernels.scale has changed")  # another test of this process may have loaded one
@pytest.mark.usefixtures("tmp_cache")
@pytest.mark.parametrize("page", [page if page in FIRST else in_full(page) for page in PAGES])
def test_page_runs(page: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    monkeypatch.chdir(tmp_path)
    assert run_page(page, with_cuda=False) > 0


FIRST_KERNEL = """
import itertools, sys, warnings
import jax, jax.numpy as jnp
import numpy as np
from jax.sharding import Mesh, NamedSharding, PartitionSpec as P
from tests.support.docs import read_blocks

warnings.simplefilter("error")
named = {}
exec(read_blocks(sys.argv[1])[0].code, named)
decay = named["ops"].decay
batch = np.arange(32.0, dtype=np.float32).reshape(4, 8)
expected = np.stack(list(itertools.accumulate(batch.T, lambda sum, x: x + sum / 2)), 1)
many = jax.vmap(decay)
text = str(jax.make_jaxpr(many)(batch))
assert "scan" not in text and "while" not in text, text
mesh = Mesh(np.array(jax.devices("cpu")), ("b",))
there = jax.device_put(batch, NamedSharding(mesh, P("b", None)))
for call in (many, decay):
    program = jax.jit(call).lower(there).compile()
    assert "all-gather" not in program.as_text()
    assert program.output_shardings.spec[0] == "b"
    assert np.array_equal(program(there), expected)
"""


@pytest.mark.full
@pytest.mark.parametrize("page", ["README.md", "docs/index.md"])
def test_the_first_kernel_is_batched_and_split_as_the_page_says(page: str):
    run_python(FIRST_KERNEL, page, env=environment(XLA_FLAGS="--xla_force_host_platform_device_count=4"))
