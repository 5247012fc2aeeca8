"""`autotune`, which finds the fastest of several configurations of a kernel once, and uses it from then on."""

from __future__ import annotations

import contextlib
import importlib.resources
import inspect
import textwrap
from collections.abc import Callable, Iterator, Mapping, Sequence
from functools import partial
from importlib.resources.abc import Traversable
from pathlib import Path
from typing import Any

from be_runtime import checks
from be_runtime.errors import ArgumentError, BuildError
from be_runtime.frames import public
from be_runtime.jax import port, transforms
from be_runtime.load.process import PROCESS
from be_runtime.request.options import check_name, noting
from be_runtime.store.cache import BuildOutput
from be_runtime.store.keys import CacheKey, make_key
from be_runtime.tune import timing, winners
from be_runtime.tune.timing import Check, Trials
from be_runtime.tune.winners import Config, TunedDevice, Winner, merged, name_config, name_of
from be_toolchain.machine.forks import ThreadLock
from be_toolchain.terminal import many, table

Function = Callable[..., Any]
Maker = Callable[..., Function]
Args = Sequence[Any] | Callable[[], Sequence[Any]]


class Declared:
    """The tuned functions that packages declare in this process."""

    def __init__(self) -> None:
        self.found: list[Tuned] = []


class Tuned:
    """A function of arrays that uses the fastest known configuration, made by `autotune`.

    The function works with ``jax.jit``, ``jax.vmap`` and ``jax.grad``. A call times nothing, and uses the stored choice
    for the sizes of the arrays, or else the stored choice for the nearest sizes. If no choice is stored, the call uses
    the first configuration. ``print`` shows the times or the stored choices.

    Attributes
    ----------
    name : str
        Name of the tuned function.
    configs : tuple of dict
        All configurations. If no choice is stored, the first configuration is used.
    args : sequence or callable
        Arrays for the timing: the argument `args` of `autotune`.
    results : list of Trials
        Tunings of this object. Each ``Trials`` describes one tuning by the ``bucket`` of sizes, the
        ``chosen`` configuration, and the ``trials`` with times in microseconds.

    See Also
    --------
    - :doc:`/tuning`: block sizes and other choices, tables of times, and packages.
    """

    def __init__(
        self,
        op: Maker,
        configs: tuple[Config, ...],
        name: str,
        package: str | None,
        bucket: Function | None,
        check: Check | None,
        runs: int,
        args: Args,
    ) -> None:
        self.args = args
        self.name, self.configs, self.package = name, configs, package
        self.results: list[Trials] = []
        self._op, self._bucket, self._check, self._runs = op, bucket, check, runs
        self._functions: dict[str, Function] = {}
        self._known: dict[str, Config] = {}
        self._chosen: dict[str, Function] = {}  # by bucket, the first look-up of a call
        self._notes: tuple[str, ...] = ()
        self._lock = ThreadLock()

    @public
    def __call__(self, *arrays: Any, **attributes: Any) -> Any:
        """Call the function of the configuration that is chosen for these arrays.

        Parameters
        ----------
        *arrays : array
            Inputs of the function.
        **attributes
            Attributes of the function.

        Returns
        -------
        array or tuple of array
            Results of the function.
        """
        bucket = self._bucket_of(arrays, attributes)
        function = self._chosen.get(bucket)
        try:
            if function is None:
                function = self._chosen[bucket] = self._make(self.config_of(bucket))
            return function(*arrays, **attributes)
        except BuildError as error:
            name_config(error, self.config_of(bucket))
            raise

    def _repr_pretty_(self, printer: Any, _is_cycle: bool) -> None:
        """Show the tables in a notebook's cell."""
        printer.text(str(self))

    def __str__(self) -> str:
        """Return tables of this object's times; if it timed nothing, a table of the stored choices."""
        if self.results:
            return "\n\n".join([f"{self.name}, tuned now", *map(str, self.results)])
        device = timing.describe_device()
        kept = merged(self._packaged(), self._rows(device) if self._notes else ())  # printing compiles nothing
        if not kept:
            count = many(len(self.configs), "configuration")
            return f"{self.name}, not tuned yet: {count}, first {name_of(self.configs[0])}"
        heads = ("sizes", "configuration", "us", "us of the first", "device")
        rows = [(row.bucket, name_of(row.config), f"{row.us:.2f}", f"{row.first_us:.2f}", row.device) for row in kept]
        return f"{self.name}, choices that are kept\n\n{table([heads, *rows])}"

    def config(self, *arrays: Any, **attributes: Any) -> Config:
        """Return the configuration for these arrays without timing anything.

        Parameters
        ----------
        *arrays : array or ShapeDtypeStruct
            Inputs of the function.
        **attributes
            Attributes of the function.

        Returns
        -------
        dict
            Keywords of ``op``, the first argument of `autotune`.
        """
        return self.config_of(self._bucket_of(arrays, attributes))

    def config_of(self, bucket: str) -> Config:
        """Return the configuration for a bucket, without timing anything."""
        if bucket not in self._known:
            self._known[bucket] = self._look_up(bucket)
        return dict(self._known[bucket])

    def tune(self, *arrays: Any, **attributes: Any) -> Trials:
        """Time all configurations with these arrays, and store the choice in place of an earlier choice.

        Parameters
        ----------
        *arrays : array
            Inputs of the function.
        **attributes
            Attributes of the function.

        Returns
        -------
        Trials
            Times of each configuration, in microseconds. ``print`` shows a table.

        Raises
        ------
        ArgumentError
            An array is traced, or checked mode (`debug`) is on.
        """
        trials, row = self._time(arrays, attributes)
        device = timing.describe_device()
        self._keep(device, lambda: merged(self._rows(device), [row]))
        return trials

    def tune_unless_known(self, *arrays: Any, **attributes: Any) -> None:
        """Time all configurations for a bucket once, also if several processes ask for it at the same time."""
        bucket, device = self._bucket_of(arrays, attributes), timing.describe_device()
        if any(row.bucket == bucket for row in self._rows(device)):
            return

        def make() -> tuple[Winner, ...]:
            rows = self._rows(device)  # another process may have stored a choice meanwhile
            known = any(row.bucket == bucket for row in rows)
            return rows if known else merged(rows, [self._time(arrays, attributes)[1]])

        self._keep(device, make)

    def _keep(self, device: TunedDevice, make: Callable[[], Sequence[Winner]]) -> None:
        """Store the choices of a device, which `make` returns, while no other process stores any."""

        def build(staging: Path) -> BuildOutput:
            (staging / winners.FILE).write_text(winners.render_winners(make()), encoding="utf-8")
            return BuildOutput((winners.FILE,))

        PROCESS.session().cache.get_or_build(self._key(device), build, force=True)
        self._known.clear()
        self._chosen.clear()

    def save(self, folder: Path | str) -> Path:
        """Add the stored choices for this device to the file ``tuned.json`` of a package.

        Parameters
        ----------
        folder : str or Path
            Folder of the package.

        Returns
        -------
        Path
            Path of the file.
        """
        rows = self._rows(timing.describe_device())
        return winners.write_package(Path(folder), [row._replace(source=self._package_source()) for row in rows])

    def _time(self, arrays: Sequence[Any], attributes: Mapping[str, Any]) -> tuple[Trials, Winner]:
        if any(port.is_traced(each) for each in arrays):
            raise ArgumentError(
                f"{self.name} can't be tuned within a program, where arrays have no values",
                hints=("tune it before: autotune(op, configs, args)",),
            )
        if checks.active() is not None:
            raise ArgumentError(
                f"{self.name} can't be tuned in checked mode, whose calls take longer",
                hints=("tune it before: outside of be_runtime.debug, and without BE_DEBUG",),
            )

        def make(config: Config) -> Function:
            return partial(self._make(config), **attributes)

        chosen, trials, us = timing.time_configs(make, self.configs, arrays, self._check, self._runs)
        bucket, device = self._bucket_of(arrays, attributes), timing.describe_device()
        config = trials[chosen].config
        self.results.append(Trials(bucket, config, trials))
        timed = round(us[chosen], 3), round(us[min(us)], 3)
        row = Winner(self.name, bucket, dict(config), *timed, *device, self._source())
        return self.results[-1], row

    def _look_up(self, bucket: str) -> Config:
        if PROCESS.settings().autotune == "off":
            return self.configs[0]
        device = timing.describe_device()
        named = {name_of(config): config for config in self.configs}  # 64.0 and True equal 64 and 1
        for rows in (self._rows(device), self._packaged()):
            found = winners.find_winner(rows, bucket, device)
            if found is not None and name_of(found.config) in named:
                return named[name_of(found.config)]
        return self.configs[0]

    def _bucket_of(self, arrays: Sequence[Any], attributes: Mapping[str, Any]) -> str:
        if self._bucket is not None:
            return str(self._bucket(*arrays, **attributes))
        return winners.bucket_of([transforms.type_of(each) for each in arrays])

    def _make(self, config: Config) -> Function:
        """Return the function of a configuration, and make it on first use."""
        name = name_of(config)
        if name not in self._functions:
            self._functions.setdefault(name, self._made(config))
        return self._functions[name]

    def _made(self, config: Config) -> Function:
        function = self._op(**config)
        if not callable(function):
            raise ArgumentError(
                f"{self.name}: op({', '.join(config)}) returned {function!r}",
                hints=("op is called with a configuration's keywords and returns a function of arrays",),
            )
        return function

    def _source(self) -> str:
        """Hash the text of `op` and the kernels that it requests for the first configuration that works."""
        with self._lock:
            if not self._notes:
                self._notes = (_text_of(self._op), *self._noted())
        return winners.texts_digest(self._notes)

    def _noted(self) -> list[str]:
        for config in self.configs:
            with noting() as notes:
                try:
                    self._functions.setdefault(name_of(config), self._made(config))
                except Exception:  # noqa: BLE001, S112 - a use of this configuration raises
                    continue
            return notes
        return []

    def _files(self) -> Traversable | None:
        return None if self.package is None else importlib.resources.files(self.package)

    def _packaged(self) -> list[Winner]:
        """Read the choices in the package's file that were timed with its current sources."""
        files = self._files()
        rows = () if files is None else winners.read_file(files / winners.FILE, f"{self.package}/{winners.FILE}")
        return [row for row in rows if row.name == self.name and row.source == self._package_source()]

    def _package_source(self) -> str:
        """Hash the text of `op` and the package's sources, independent of the package's folder."""
        files = self._files()
        return winners.texts_digest([_text_of(self._op), "" if files is None else winners.sources_digest(files)])

    def _key(self, device: TunedDevice) -> CacheKey:
        fields = (("name", self.name), ("device", device.name), ("driver", device.driver))
        return make_key("tuned", *fields, ("configs", [*map(name_of, self.configs)]), ("source", self._source()))

    def _rows(self, device: TunedDevice) -> tuple[Winner, ...]:
        entry = PROCESS.session().cache.get(self._key(device))
        with contextlib.suppress(FileNotFoundError):  # the file was removed meanwhile
            if entry is not None:
                return winners.parse_winners(entry.output(winners.FILE).read_bytes(), str(entry.path))
        return ()


@public
def autotune(
    op: Maker,
    configs: Mapping[str, Sequence[Any]] | Sequence[Mapping[str, Any]],
    args: Args = (),
    *,
    name: str | None = None,
    package: str | None = None,
    bucket: Function | None = None,
    check: Check | None = None,
    runs: int = 10,
) -> Tuned:
    """Time a kernel's configurations once for each device and size of arrays, and use the fastest configuration.

    Configurations are compiled in parallel and timed in turns, in a compiled loop. On a GPU, the GPU's last-level cache
    is flushed before each timed call. If the results of a configuration differ from the results of the first
    configuration that works, `autotune` rejects the configuration. The chosen configuration is stored in the cache
    folder, for the device, the driver, the source and a group of array sizes. The argument `bucket` defines the groups.
    If a later process finds a stored choice, the process times nothing.

    If ``BE_AUTOTUNE=cached`` is set, `autotune` times nothing, and stored choices are used. If ``BE_AUTOTUNE=off`` is
    set, the first configuration is used.

    Parameters
    ----------
    op : callable
        Function that takes the keywords of a configuration, and returns the function of arrays to time. The returned
        function may be a module's function, a kernel of `cuda_kernel`, or a Python function that calls such functions.
        Several threads may call `op` at the same time.
    configs : mapping of str to sequence, or sequence of mapping
        Mapping from each keyword to a sequence of values: `autotune` tries all combinations of values. Alternatively, a
        sequence of configurations. JSON must be able to represent the values.
    args : sequence of array, sequence of sequences of array, or callable, default ()
        Arrays for the timing, several sets of arrays, or a function that returns arrays or sets of arrays. If no choice
        is stored for these arrays, `autotune` times the configurations before it returns. The exceptions are the
        argument `package`, checked mode, and ``BE_AUTOTUNE=cached`` or ``off``. Without arrays, nothing is timed until
        you call `Tuned.tune`.
    name : str, optional
        Name of the tuned function. The default is the name of `op`.
    package : str, optional
        Package whose file ``tuned.json`` contains the choices; pass ``__name__`` in the package's ``__init__.py``. With
        this argument, `autotune` times nothing. Instead, ``python -m be_runtime tune PACKAGE`` times the configurations
        with `args`, and writes the file.
    bucket : callable, optional
        Function of the arrays and attributes of a call. If the function returns equal values for two calls, the calls
        share a choice. The default function returns the dtypes, and the extents rounded up to powers of two.
    check : callable, optional
        ``check(first, other)`` returns whether the array ``other`` is correct, given the array of the first
        configuration that works. By default, integers must be equal. Floats may differ by a fraction of the
        largest entry: 1e-3 for 16-bit floats, 1e-5 for 32-bit floats and 1e-12 for 64-bit floats.
    runs : int, default 10
        Number of samples of each configuration.

    Returns
    -------
    Tuned
        Function of arrays.

    Raises
    ------
    ArgumentError
        There is no configuration, JSON can't represent a configuration, or `runs` is below 1.
    Exception
        The error of the first configuration, if no configuration works.

    See Also
    --------
    - :doc:`/tuning`: block sizes and other choices, tables of times, and packages.

    Examples
    --------
    >>> import be_runtime
    >>> import jax.numpy as jnp
    >>> def op(parts):
    ...     return lambda x: sum(part.sum() for part in jnp.split(x, parts))
    >>> tuned = be_runtime.autotune(op, {"parts": [1, 2]}, name="doc_parts")
    >>> float(tuned(jnp.arange(4.0)))
    6.0
    """
    shown = str(getattr(op, "__qualname__", type(op).__name__)).replace("<", "").replace(">", "").replace(".", "_")
    if runs < 1:
        raise ArgumentError(f"runs={runs!r} must be at least 1")
    tuned = Tuned(
        op, winners.expand(configs), check_name(shown if name is None else name), package, bucket, check, runs, args
    )
    if package is not None:
        PROCESS.only(Declared, Declared).found.append(tuned)
    elif PROCESS.settings().autotune == "on" and checks.active() is None:
        for arrays in argument_sets(args):
            tuned.tune_unless_known(*arrays)
    return tuned


def argument_sets(args: Args) -> Iterator[Sequence[Any]]:
    """Yield each set of arrays to time with."""
    given = args() if callable(args) else args
    if len(given) and not all(isinstance(each, list | tuple) for each in given):
        yield given
    else:
        yield from given


def _text_of(op: Function) -> str:
    """Return the source text of a function, or its name if Python finds no source."""
    with contextlib.suppress(OSError, TypeError):
        return textwrap.dedent(inspect.getsource(op))
    return str(getattr(op, "__qualname__", type(op).__qualname__))
