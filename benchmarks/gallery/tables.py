"""Pure: what the gallery's pages say in numbers, as MyST text."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from .comparison import Comparison

_FASTER = {True: "the kernel", False: "**plain JAX**", None: "neither"}
_COLUMNS = (
    *("machine", "problem", "kernel, median", "best plain JAX, median"),
    *("speed-up, median of the ratios [95 % interval]", "faster"),
)
TITLES = {
    "lif": "spiking network",
    "histogram": "histogram",
    "flock": "cell list",
    "adamw": "optimizer step",
    "scan": "scan with a gradient",
    "photons": "Monte Carlo",
}


def machine_name(machine: Mapping[str, Any]) -> str:
    """The GPU, or the CPU with its cores.

    Examples
    --------
    >>> machine_name({"gpu": None, "cpu": "Some CPU", "cores": 2})
    'Some CPU, 2 cores'
    """
    return str(machine["gpu"] or f"{machine['cpu']}, {machine['cores']} cores")


def page_table(machines: Mapping[str, Sequence[Comparison]]) -> str:
    """All problems of a page, with the verdict of each machine."""
    rows = [f"| {' | '.join(_COLUMNS)} |", f"{'|---' * len(_COLUMNS)}|"]
    for machine, comparisons in machines.items():
        rows += [f"| {machine} | {_problem(each, comparisons)} | {_row(each)} |" for each in comparisons]
    return "\n".join(rows) + "\n"


def _problem(each: Comparison, others: Sequence[Comparison]) -> str:
    """The label, behind the operation's name where there are several."""
    several = len({other.operation for other in others}) > 1
    return f"{each.operation}, {each.label}" if several else each.label


def _row(each: Comparison) -> str:
    times = f"{milliseconds(each.kernel)} | {milliseconds(each.plain[each.best])} ({each.best.removeprefix('jax, ')})"
    return f"{times} | {each.gain.value:.2f} [{each.gain.low:.2f}, {each.gain.high:.2f}] | {_FASTER[each.is_faster]}"


def summary_table(pages: Mapping[str, Mapping[str, Sequence[Comparison]]]) -> str:
    """The gains of all pages, from the least to the most of each machine."""
    machines = list(dict.fromkeys(machine for page in pages.values() for machine in page))
    rows = [f"| page | {' | '.join(machines)} |", "|---" * (len(machines) + 1) + "|"]
    for name, page in pages.items():
        gains = [_range(page.get(machine, ())) for machine in machines]
        rows.append(f"| [{TITLES[name]}]({name}.md) | {' | '.join(gains)} |")
    return "\n".join(rows) + "\n"


def cards(pages: Mapping[str, Mapping[str, Sequence[Comparison]]], machine: str) -> str:
    """A card for each page: its picture, its name, and its gains on one machine."""
    parts = ["::::{grid} 1 2 2 3", ":gutter: 3", ""]
    for name, page in pages.items():
        title = TITLES[name][0].upper() + TITLES[name][1:]
        parts += [f":::{{grid-item-card}} {title}", f":link: {name}", ":link-type: doc"]
        parts += [f":img-top: figures/{name}.png", f":img-alt: {title}", ""]
        parts += [f"**{_range(page[machine])} ×** on {machine}", ":::", ""]  # noqa: RUF001
    return "\n".join([*parts, "::::", ""])


def _range(comparisons: Sequence[Comparison]) -> str:
    """The least and the most times that the best plain JAX takes, in times of the kernel."""
    values = [f"{value:.2g}" for value in sorted(each.gain.value for each in comparisons)]
    if not values:
        return "not measured"
    return values[0] if values[0] == values[-1] else f"{values[0]} to {values[-1]}"


def milliseconds(seconds: float) -> str:
    """A duration in three digits.

    Examples
    --------
    >>> milliseconds(0.0123456)
    '12.3 ms'
    """
    return f"{1e3 * seconds:.3g} ms"
