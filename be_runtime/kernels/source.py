"""The interface of a source of GPU kernels: the arguments of a kernel, and its images with their entries."""

from __future__ import annotations

import struct
from abc import ABC, abstractmethod
from collections.abc import Mapping
from functools import partial
from typing import Any, NamedTuple, Protocol

from be_runtime.call.compiled_function import Computed, KernelTarget
from be_runtime.call.resolve import Resolved
from be_runtime.jax.arrays import Numbers, Value
from be_runtime.kernels.geometry import PARAM_NUMBERS, Geometry, LaunchParam, encode_params, scalar_param
from be_runtime.kernels.launcher import Again, Kernel, Launcher, Memo, choose_archs, own_launcher
from be_runtime.kernels.sizes import Sizes
from be_runtime.load.process import PROCESS
from be_runtime.load.registry import Session
from be_toolchain.arch import Arch

Variant = tuple[str, ...]
"""Types for which code is compiled, in its compiler's names; empty for code that fits all calls."""


SCRATCH_UNIT = 256
"""Alignment in bytes of each scratch memory, also in a batch."""


def number_of(value: Value) -> Numbers:
    """Return a number among the scalars of a call."""
    assert isinstance(value, Numbers), "the scalars of a kernel are numbers"
    return value


def scalar_of(value: Value) -> LaunchParam:
    """Describe a number among the scalars of a call."""
    return scalar_param(number_of(value).data)


class Bound(NamedTuple):
    """The arguments of a call in the form in which a kernel takes them.

    Parameters
    ----------
    params : tuple of LaunchParam
        Parameters of the kernel.
    variant, general : tuple of str
        Types of the call, and types of more general code that also serves the call, if there is such code.
    extents : tuple of (int, str)
        Numbers of the parameters for extents, each with its axis.
    """

    params: tuple[LaunchParam, ...]
    variant: Variant = ()
    general: Variant = ()
    extents: tuple[tuple[int, str], ...] = ()


class Launch(NamedTuple):
    """The launch of a kernel for a call.

    Parameters
    ----------
    geometry : Geometry
    params : tuple of LaunchParam
    local : tuple of str, or None
        Numbers of the geometry as arithmetic over the axes of one device, see `Sizes.local`.
    extents : tuple of (int, str)
        See `Bound`.
    scratch : tuple of (int, str), or None
        See `KernelTarget`.
    """

    geometry: Geometry
    params: tuple[LaunchParam, ...] = ()
    local: tuple[str, ...] | None = None
    extents: tuple[tuple[int, str], ...] = ()
    scratch: tuple[int, str] | None = None

    def with_geometry(self, **numbers: Any) -> Launch:
        """Return the launch with other numbers of its geometry, equal on every device."""
        changed, local = self.geometry._replace(**numbers), self.local
        if local is not None:
            pairs = zip(local, self.geometry.encode(), changed.encode(), strict=True)
            local = tuple(text if before == after else str(after) for text, before, after in pairs)
        return self._replace(geometry=changed, local=local)


class Obtained(NamedTuple):
    """A kernel, the launcher for its calls, and a function that compiles it for other architectures."""

    kernel: Kernel
    launcher: Launcher
    again: Again | None = None


class Layout(Protocol):
    """The arguments and the launch of a kernel."""

    def bind(self, call: Resolved, scalars: Mapping[str, Value]) -> Bound:
        """Lay out the arguments of a call.

        Raises
        ------
        ArgumentError
            The call doesn't fit the kernel.
        """

    def fit(self, launch: Launch, kernel: Kernel, call: Resolved) -> Launch:
        """Fit a launch to the images of a kernel."""


class Code(Protocol):
    """The images of a kernel with their entries."""

    def obtain(self, call: Resolved, bound: Bound) -> Obtained:
        """Return the kernel for the types of a call, compiled or read at the first such call."""


class GpuSource(NamedTuple):
    """A kernel without host code, see `be_runtime.call.function.KernelSource`.

    Parameters
    ----------
    layout : Layout
    code : Code
    sizes : Sizes
    """

    layout: Layout
    code: Code
    sizes: Sizes

    def target(self, call: Resolved, scalars: Mapping[str, Value]) -> KernelTarget:
        """Define the kernel of a call in its launcher, and return the call's target."""
        bound, geometry = self.layout.bind(call, scalars), self.sizes.geometry(call)
        obtained = self.code.obtain(call, bound)
        made = Launch(geometry, bound.params, self.sizes.local(geometry), bound.extents)
        made = made.with_geometry(is_cooperative=obtained.kernel.is_cooperative)
        return launch(obtained, self.layout.fit(made, obtained.kernel, call))


def launch(obtained: Obtained, made: Launch) -> KernelTarget:
    """Define a kernel in its launcher, and return the target of a launch."""
    kernel, launcher, again = obtained
    launcher.define(kernel, again)
    numbers = {"launch": made.geometry.encode(), "params": encode_params(made.params)}
    words: dict[str, Value] = {
        name: Numbers("int64", struct.pack(f"={len(each)}q", *each), is_array=True) for name, each in numbers.items()
    }
    computed: Computed | None = None if made.local is None else (("launch", made.local),)
    if computed is not None and made.extents:
        texts = [*map(str, numbers["params"])]
        for number, axis in made.extents:
            texts[PARAM_NUMBERS * number + 1] = axis
        computed = (*computed, ("params", tuple(texts)))
    attributes = (("kernel", kernel.id), ("name", kernel.name), *words.items())
    targets = ((launcher.platform.lower(), launcher.target),)  # lowerings have the same names in small letters
    return KernelTarget(targets, attributes, computed, scratch=made.scratch)


class Compilable(Protocol):
    """A kernel for certain types that a compiler can make."""

    def build(self, archs: tuple[Arch, ...], session: Session, *, with_ptx: bool = False) -> Kernel:
        """Return the kernel for each architecture, from the cache or compiled now.

        Parameters
        ----------
        with_ptx : bool
            True to add PTX of the latest architecture, if the compiler makes PTX for later architectures.
        """


class CompiledCode(ABC):
    """The images of a kernel that is compiled when a call is traced, once for each variant in a process.

    Parameters
    ----------
    asked : str or None
        Architectures instead of the present devices' architectures.
    """

    def __init__(self, asked: str | None = None) -> None:
        self._asked = asked
        self._made = Memo[Kernel]()

    @abstractmethod
    def compilable(self, call: Resolved, variant: Variant) -> Compilable:
        """Return the kernel for the types of a call."""

    def obtain(self, call: Resolved, bound: Bound) -> Obtained:
        """Return the compiled kernel for the types of a call."""
        session, kernel = PROCESS.session(), self.compilable(call, bound.variant)
        made = self.built(kernel, bound.variant, session)
        return Obtained(made, own_launcher(session), partial(kernel.build, session=session, with_ptx=True))

    def built(self, kernel: Compilable, variant: Variant, session: Session) -> Kernel:
        """Return a kernel for the architectures of this process."""
        archs = choose_archs(self._asked, session)
        return self._made.get((variant, archs), lambda: kernel.build(archs, session))
