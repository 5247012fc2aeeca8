"""Tunings for one bucket: the time of each configuration, and the choice, as values and as a table. Pure."""

from __future__ import annotations

from typing import NamedTuple

from be_runtime.tune.configs import Config, name_of
from be_toolchain.terminal import table


class Trial(NamedTuple):
    """One configuration of a tuning.

    Parameters
    ----------
    config : dict
    warm_us, cold_us : float or None
        Median microseconds of one call, and of one with a GPU's last cache flushed before it; None if it was rejected.
    rejected : str
        Reason why it can't be chosen.
    """

    config: Config
    warm_us: float | None = None
    cold_us: float | None = None
    rejected: str = ""


class Trials(NamedTuple):
    """A tuning for one bucket; ``print`` shows a table.

    Parameters
    ----------
    bucket : str
    chosen : dict
        The configuration that was chosen.
    trials : tuple of Trial
    """

    bucket: str
    chosen: Config
    trials: tuple[Trial, ...]

    def __str__(self) -> str:
        heads = ("configuration", "us, warm", "us, flushed", "")
        rows = [
            (
                name_of(each.config),
                "" if each.warm_us is None else f"{each.warm_us:.2f}",
                "" if each.cold_us is None else f"{each.cold_us:.2f}",
                each.rejected or ("chosen" if each.config == self.chosen else ""),
            )
            for each in self.trials
        ]
        return f"{self.bucket}\n{table([heads, *rows])}"
