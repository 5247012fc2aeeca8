"""A kernel for tests that are not about what a kernel computes."""

from __future__ import annotations


def scaling(name: str = "twice", by: object = 2, before: str = "") -> str:
    """The source of a function that multiplies an array by an expression."""
    return f"""{before}#include "brainevent/common.h"
// @BE {name} arg[n] ret[n]:like(0)
void {name}(const BE::Tensor x, BE::Tensor y) {{
  for (int64_t i = 0; i < x.numel(); ++i) y.data_ptr<float>()[i] = {by} * x.data_ptr<float>()[i];
}}
"""
