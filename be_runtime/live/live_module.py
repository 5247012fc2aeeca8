"""A module that follows its files, and its functions."""

from __future__ import annotations

from collections.abc import Mapping
from functools import partial
from typing import Any

from be_runtime.call.call_options import Options
from be_runtime.call.compiled_function import Program
from be_runtime.call.derivatives import Derivative, Rule
from be_runtime.call.function import KernelFunction, kernel_rule
from be_runtime.call.resolve import CallSignature
from be_runtime.frames import public
from be_runtime.live.followed import FollowedModule
from be_runtime.load.module import CompiledModule, ModuleInfo


class LiveModule(CompiledModule):
    """A module that is at any time what its files are; it takes over the state of the module that was made of them.

    Parameters
    ----------
    followed : FollowedModule
    """

    def __init__(self, followed: FollowedModule) -> None:
        self.__dict__.update(__followed__=followed, __live__={})

    @property
    def __info__(self) -> ModuleInfo:
        """The module's own, of the files as they are."""
        return ModuleInfo.of(self.__dict__["__followed__"].current())

    @public
    def __getitem__(self, name: str) -> KernelFunction[..., Any]:
        """Return a function, which follows the files too.

        Raises
        ------
        KeyError
            The module never had such a function.
        AttributeError
            It has it no more.
        """
        live: dict[str, LiveFunction] = self.__dict__["__live__"]
        if name not in live:
            live[name] = LiveFunction(self, name)
        live[name].latest()
        return live[name]


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
        self._made: tuple[ModuleInfo, KernelFunction[..., Any]] | None = None
        self.latest()

    def latest(self) -> KernelFunction[..., Any]:
        """Return the function of the module as it is now.

        Raises
        ------
        AttributeError
            The module has it no more.
        """
        version = ModuleInfo.of(self.module)
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

    def _renewed(self, version: ModuleInfo, signature: CallSignature, rule: Rule) -> Rule:
        """Return a rule as it is for a version of the module."""
        function = rule.function
        if isinstance(function, LiveFunction) and function.module is self.module:
            return kernel_rule(function, version.entry_point(function.entry)[0])
        return rule if rule.is_kernel else rule._replace(attributes=signature.attribute_names)

    @public
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
