"""Modules whose function ``answer`` gives a value: `python -m tests.faults.answering NAME VALUE...` prints each."""

from __future__ import annotations

import ctypes
import sys
from pathlib import Path
from typing import Any

import be_runtime

_SOURCE = """
#include "brainevent/common.h"
{text}
extern "C" __attribute__((visibility("default"))) int answer() {{ return {value}; }}
// @BE f
void f(BE::Tensor out) {{ (void)out; }}
"""


def load(name: str, value: object, text: str = "", **options: Any) -> tuple[int, Path]:
    """What the module gives for an expression behind some text, and its library."""
    source = _SOURCE.format(text=text, value=value)
    module = be_runtime.load_cpp_inline(name, source, auto_register=False, **options)
    assert callable(module.f), "its list of functions is read"
    return int(ctypes.CDLL(str(module.path)).answer()), module.path


if __name__ == "__main__":
    for each in sys.argv[2:]:
        sys.stdout.write(f"{load(sys.argv[1], each)[0]}\n")
