"""The compiled code of a function, for functions of arrays."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

from be_runtime.call.function import Code, KernelFunction
from be_runtime.call.resolve import Export

if TYPE_CHECKING:
    from be_runtime.load.module import ModuleInfo


class EntryCode(Code):
    """An entry point of a module, or of several modules for different platforms.

    Parameters
    ----------
    modules : sequence of ModuleInfo
    name : str
    """

    def __init__(self, modules: Sequence[ModuleInfo], name: str) -> None:
        self.modules, self.name = tuple(modules), name

    def __call__(self) -> tuple[tuple[str, str], ...]:
        """Register the targets, and return each with its platform of JAX."""
        return tuple(target for module in self.modules for target in module.targets(self.name))

    def exports(self) -> tuple[Export, ...]:
        """Return the symbols for calls without JAX, of each platform."""
        return tuple(module.export(self.name) for module in self.modules)

    def in_torch(self, function: KernelFunction[..., Any]) -> Any:
        """Return the function for PyTorch tensors."""
        from be_runtime.torch import torch_function

        return torch_function(function)
