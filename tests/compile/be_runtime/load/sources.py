"""Sources of entry points that write a number each: most tests of builds and loads need no more."""

from __future__ import annotations

from pathlib import Path

import jax
import numpy as np

from tests.support.runtime import call

VALUE = jax.ShapeDtypeStruct((), np.int32)


def source(head: str = "", /, **functions: object) -> str:
    """A text of entry points by name, each with the expression whose value it writes."""
    body = "// @BE {0}\nvoid {0}(BE::Tensor out) {{ out.data_ptr<int32_t>()[0] = {1}; }}\n"
    return f'{head}#include "brainevent/common.h"\n' + "".join(body.format(*pair) for pair in functions.items())


def value(target: str) -> int:
    """What such an entry point writes."""
    return int(call(target, VALUE))


def write(folder: Path, **files: str) -> Path:
    """Write files of a folder, by their names without a suffix and a suffix for all: `.cc`."""
    folder.mkdir(parents=True, exist_ok=True)
    for name, text in files.items():
        (folder / f"{name}.cc").write_text(text)
    return folder
