"""A module that follows its files, and its functions."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from functools import partial
from typing import TYPE_CHECKING, Any

from be_runtime.call.call_options import Options
from be_runtime.call.compiled_function import Program
from be_runtime.call.derivatives import Derivative, Rule
from be_runtime.call.function import KernelFunction, kernel_rule
from be_runtime.call.resolve import CallSignature
from be_runtime.live.followed import FollowedModule
from be_runtime.load.module import CompiledModule

if TYPE_CHECKING:
    from be_runtime.reports.module_report import ModuleReport


class LiveModule(CompiledModule):
    """A module that is at any time what its files are; it takes over the state of the module that was made of them.

    Parameters
    ----------
    followed : FollowedModule
    """

    def __init__(self, followed: FollowedModule) -> None:
        self._followed = followed
        self._version: CompiledModule | None = None
        self._live: dict[str, LiveFunction] = {}
        self.current()

    def current(self) -> CompiledModule:
        """Return the module of the files as they are."""
        version = self._followed.current()
        if version is not self._version:
            self.__dict__.update(vars(version), _version=version)
        return version

    @property
    def function_names(self) -> list[str]:
        """The names of the module's functions, in the order of the source."""
        return self.current().function_names

    def report(self, *, block_sizes: Sequence[int] | None = None, loops: bool = False) -> ModuleReport:
        """Describe what the compiler made of the module as it is now, see `LoadedModule.report`."""
        return self.current().report(block_sizes=block_sizes, loops=loops)

    def __getitem__(self, name: str) -> KernelFunction[..., Any]:
        """Return a function, which follows the files too.

        Raises
        ------
        KeyError
            The module never had such a function.
        AttributeError
            It has it no more.
        """
        if name not in self._live:
            self._live[name] = LiveFunction(self, name)
        self._live[name].latest()
        return self._live[name]

    def __getattr__(self, name: str) -> KernelFunction[..., Any]:
        """Return a function, which may be new."""
        if not name.startswith("_"):
            self.current()
        return super().__getattr__(name)

    def __dir__(self) -> list[str]:
        """The names of the functions as they are now, and what every module has."""
        self.current()
        return super().__dir__()


class LiveFunction(KernelFunction[..., Any]):
    """A function of a module that follows its files: each call is one of the module as it is then.

    Its options and its rules stay when the code changes.

    Parameters
    ----------
    module : LiveModule
    name : str
    options : Options
    derivative : Derivative

    Raises
    ------
    KeyError
        The module has no such function.
    """

    def __init__(
        self, module: LiveModule, name: str, options: Options | None = None, derivative: Derivative | None = None
    ) -> None:
        self.module, self.entry = module, name
        self._chosen, self._rules = options or Options(), derivative or Derivative()
        self._made: tuple[CompiledModule, KernelFunction[..., Any]] | None = None
        self.latest()

    def latest(self) -> KernelFunction[..., Any]:
        """Return the function of the module as it is now.

        Raises
        ------
        AttributeError
            The module has it no more.
        """
        version = self.module.current()
        if self._made is None or self._made[0] is not version:
            try:
                signature, targets = version.entry_point(self.entry)
                self._rules = self._rules.map(partial(self._renewed, version, signature))
            except KeyError as error:
                if self._made is None:
                    raise
                raise AttributeError(f"{self.__qualname__} can't be called any more: {error.args[0]}") from None
            own = signature, targets, self.module.__getitem__, self._chosen, self._rules
            super().__init__(*own)
            self.__dict__.pop("__signature__", None)
            self._made = version, KernelFunction(*own).checked_by(version.mode)
        return self._made[1]

    def _renewed(self, version: CompiledModule, signature: CallSignature, rule: Rule) -> Rule:
        """Return a rule as it is for a version of the module."""
        function = rule.function
        if isinstance(function, LiveFunction) and function.module is self.module:
            return kernel_rule(function, version.entry_point(function.entry)[0])
        return rule if rule.is_kernel else rule._replace(attributes=signature.attribute_names)

    def __call__(self, /, *arrays: Any, outs: Any = None, **attributes: Any) -> Any:
        """Call the kernel as it is now, see `CompiledFunction`."""
        return self.latest()(*arrays, outs=outs, **attributes)

    def clear(self) -> None:
        """Forget the compiled programs, see `CompiledFunction.clear`."""
        if self._made is not None:
            self._made[1].clear()

    def _program(self, outs: Any, attributes: Mapping[str, Any]) -> Program:
        return partial(self.latest(), outs=outs, **attributes)

    def _with(self, options: Options) -> LiveFunction:
        return LiveFunction(self.module, self.entry, options, self._rules)

    def _derive(self, derivative: Derivative) -> None:
        self.clear()
        self._rules, self._made = derivative, None
        self.latest()
