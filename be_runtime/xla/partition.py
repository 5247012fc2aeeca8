"""A partitioner for all calls: XLA asks it for the program of one device, when it compiles for several.

A call is emitted as ``be.partition.v1`` with everything that is known of it as JSON. The partitioner keeps nothing
between calls, and no object of this process is in a program. So JAX's persistent cache finds programs, and they can be
exported. What it makes is the call itself, on the parts, and an all-reduce for partial sums.

It uses ``jaxlib.xla_client``: ``register_custom_call_partitioner``, ``HloSharding`` and ``OpSharding``, and
``jax._src.xla_bridge.register_plugin_callbacks``, which hands the partitioner to a CUDA plugin (JAX 0.6 to 0.12).
"""

from __future__ import annotations

import functools
import json
import math
import warnings
from collections import defaultdict
from collections.abc import Sequence
from typing import Any

import numpy as np
from jax._src import xla_bridge
from jaxlib import xla_client

from be_runtime.errors import GatherWarning, TransformError
from be_runtime.expressions import evaluate, parse_expression
from be_runtime.xla.split import VMAPPED, Split

TARGET = "be.partition.v1"
"""The name of split calls, also in exported programs."""


class Placement:
    """The places of devices along each factor, read from the shardings of a call's arrays."""

    def __init__(self, split: Split, arrays: Sequence[tuple[Sequence[str], Any, Any]]) -> None:
        self.count: dict[str, int] = {}
        self.devices = 1
        self._coordinate: dict[str, dict[int, int]] = {}
        for factors, sharding, shape in arrays:
            if sharding.is_tiled():
                self._read(split, factors, sharding, shape.dimensions())

    def _read(self, split: Split, factors: Sequence[str], sharding: Any, extents: Sequence[int]) -> None:
        counts = sharding.tile_assignment_dimensions()  # a last one more where several devices have one part
        tiles = np.array(sharding.tile_assignment_devices()).reshape(counts)
        self.devices = tiles.size
        for index, factor in enumerate(factors):  # the first array that splits a factor decides
            # A part that is padded would be computed, and summed, like any other.
            divides = counts[index] > 1 and extents[index] % counts[index] == 0
            if divides and factor in split.free and factor not in self._coordinate:
                self._coordinate[factor] = {int(device): at[index] for at, device in np.ndenumerate(tiles)}
                self.count[factor] = counts[index]
                if len(self.groups(tuple(self.count))) != math.prod(self.count.values()):  # another factor's devices
                    del self._coordinate[factor], self.count[factor]

    def groups(self, factors: Sequence[str]) -> dict[tuple[int, ...], list[int]]:
        """Return the devices at each place along some factors."""
        found = defaultdict(list)
        for device in range(self.devices):
            found[tuple(self._coordinate[f][device] if f in self._coordinate else 0 for f in factors)].append(device)
        return found

    def sharding(self, factors: Sequence[str]) -> Any:
        """Return the sharding of an array with these factors."""
        if self.count.keys().isdisjoint(factors):
            return xla_client.HloSharding.replicate()
        groups = self.groups(factors)
        tiles = np.empty((*(self.count.get(f, 1) for f in factors), len(next(iter(groups.values())))), int)
        for at, devices in groups.items():
            tiles[at] = devices
        sharding = xla_client.OpSharding()
        sharding.type, sharding.replicate_on_last_tile_dim = xla_client.OpSharding.Type.OTHER, True
        sharding.tile_assignment_dimensions = list(tiles.shape)
        sharding.tile_assignment_devices = tiles.ravel().tolist()
        return xla_client.HloSharding.from_proto(sharding)

    def sums(self, split: Split, mesh: Any) -> list[list[int]]:
        """Return groups of devices that have all parts of the results together; empty if each result is whole."""
        reduced = [factor for factor in split.partial_sums() if factor in self.count]
        if not reduced:
            return []
        kept = [factor for factor in self.count if factor not in reduced]
        found = defaultdict(list)
        for at, devices in self.groups([*kept, *reduced]).items():
            for copy, device in enumerate(devices):
                found[at[: len(kept)], copy].append(device)
        if mesh is None:
            return list(found.values())
        # Within shard_map over some axes, XLA numbers the devices of each group of equal manual indices.
        sizes, manual = mesh
        numbers = np.moveaxis(np.arange(math.prod(sizes)).reshape(sizes), manual, range(len(manual)))
        return [
            [int(row[device]) for device in group]
            for row in numbers.reshape(-1, self.devices)
            for group in found.values()
        ]


def _check_gathers(label: str, split: Split, place: Placement, shardings: Sequence[Any], shapes: Sequence[Any]) -> None:
    """Warn of arguments that each device needs more of than it has."""
    for number, (factors, sharding, shape) in enumerate(zip(split.operands, shardings, shapes, strict=True)):
        counts = sharding.tile_assignment_dimensions() if sharding.is_tiled() else ()
        for axis, (factor, count) in enumerate(zip(factors, counts, strict=False)):
            if count == 1 or place.count.get(factor) == count:
                continue
            name = factor.rpartition(": ")[2]
            if factor not in split.free:
                why = f"the kernel needs all of it; parallel[{name}] in the arg_spec says that it can be split"
            elif shape.dimensions()[axis] % count:
                why = f"{count} devices do not divide its {shape.dimensions()[axis]} elements"
            else:
                why = "another axis is split over the same devices"
            text = f"{label}: argument {number} is gathered along {name} (axis {axis}) for each device: {why}"
            if split.on_gather == "error":
                raise TransformError(text)
            warnings.warn(text, GatherWarning, stacklevel=2)


def _tensor(shape: Sequence[int], element: str) -> str:
    return f"tensor<{''.join(f'{extent}x' for extent in shape)}{element}>"


def _program(
    config: dict[str, Any], split: Split, operands: Sequence[Any], results: Sequence[Any], groups: Any
) -> bytes:
    """Write the program of one device: the call on its parts, and sums over all parts."""
    ins = [tuple(shape.dimensions()) for shape in operands]
    outs = [tuple(shape.dimensions()) for shape in results]
    values = {name: ins[index][axis] for name, (index, axis) in split.places}
    values |= dict(split.integers)
    batch = outs[0][: sum(factor.startswith(VMAPPED) for factor in split.results[0])]
    hidden = [(*batch, evaluate(parse_expression(text), values)) for text in split.scratch]
    in_types = [_tensor(shape, kind) for shape, kind in zip(ins, config["elements"][0], strict=True)]
    out_types = [_tensor(shape, kind) for shape, kind in zip(outs, config["elements"][1], strict=True)]
    made = [*out_types, *(_tensor(shape, "ui8") for shape in hidden)]
    names = ", ".join(f"%a{index}" for index in range(len(ins)))
    layouts = [", ".join(map(_layout, shapes)) for shapes in (ins, [*outs, *hidden])]
    aliases = ", ".join(_alias(source, target, len(made)) for source, target in config["aliases"])
    call = (
        f'%r:{len(made)} = "stablehlo.custom_call"({names}) {{call_target_name = "{config["target"]}", '
        f"api_version = 4 : i32, backend_config = {config['attributes']}, operand_layouts = [{layouts[0]}], "
        f"result_layouts = [{layouts[1]}], output_operand_aliases = [{aliases}], "
        f"has_side_effect = {str(config['has_side_effect']).lower()}}} : ({', '.join(in_types)}) -> ({', '.join(made)})"
    )
    body = [call]
    shown = [f"%r#{index}" if len(made) > 1 else "%r" for index in range(len(outs))]
    if groups:
        elements = config["elements"][1]
        body += [
            _all_reduce(index, shown[index], out_types[index], elements[index], groups) for index in range(len(outs))
        ]
        shown = [f"%s{index}" for index in range(len(outs))]
    arguments = ", ".join(f"%a{index}: {kind}" for index, kind in enumerate(in_types))
    returned = ", ".join(out_types)
    lines = "\n".join([*body, f"return {', '.join(shown)} : {returned}"])
    return f"module {{ func.func public @main({arguments}) -> ({returned}) {{\n{lines} }} }}".encode()


def _layout(shape: Sequence[int]) -> str:
    return f"dense<{list(range(len(shape)))[::-1]}> : tensor<{len(shape)}xindex>"


def _alias(source: int, target: int, count: int) -> str:
    where = f"[{target}]" if count > 1 else "[]"
    return (
        f"#stablehlo.output_operand_alias<output_tuple_indices = {where}, operand_index = {source}, "
        "operand_tuple_indices = []>"
    )


def _all_reduce(index: int, value: str, kind: str, element: str, groups: list[list[int]]) -> str:
    element = f"tensor<{element}>"
    return (
        f'%s{index} = "stablehlo.all_reduce"({value}) ({{ ^bb0(%p: {element}, %q: {element}): '
        f'%t = stablehlo.add %p, %q : {element} "stablehlo.return"(%t) : ({element}) -> () }}) '
        f"{{replica_groups = dense<{groups}> : tensor<{len(groups)}x{len(groups[0])}xi64>, use_global_device_ids, "
        f"channel_handle = #stablehlo.channel_handle<handle = {index + 1}, type = 1>}} : ({kind}) -> {kind}"
    )


def _partition(shapes: Any, shardings: Any, result_shape: Any, result_sharding: Any, text: Any) -> Any:
    """Answer XLA: the program of one device, and the shardings of its arguments and results."""
    config = json.loads(text)
    split = Split.from_json(config["split"])
    several = result_shape.is_tuple()
    results = result_shape.tuple_shapes() if several else [result_shape]
    wanted = result_sharding.tuple_elements() if several else [result_sharding]
    given = list(zip(split.operands, shardings, shapes, strict=True))
    place = Placement(split, [*given, *zip(split.results, wanted, results, strict=True)])
    _check_gathers(config["label"], split, place, shardings, shapes)
    ins = [place.sharding(factors) for factors in split.operands]
    outs = [place.sharding(factors) for factors in split.results]
    program = _program(
        config,
        split,
        [sharding.tile(shape) for sharding, shape in zip(ins, shapes, strict=True)],
        [sharding.tile(shape) for sharding, shape in zip(outs, results, strict=True)],
        place.sums(split, config["mesh"]),
    )
    return program, ins, xla_client.HloSharding.tuple_sharding(result_shape, outs) if several else outs[0]


def _register() -> None:
    """Give the partitioner to XLA, and to plugins, whose registries are their own."""
    callbacks = {
        "prop_user_sharding": lambda sharding, _shape, _config: sharding,
        "partition": _partition,
        "infer_sharding_from_operands": lambda _shapes, shardings, _shape, _config: shardings[0],
    }
    xla_client.register_custom_call_partitioner(TARGET, *callbacks.values(), True)
    xla_bridge.register_plugin_callbacks(
        functools.partial(
            xla_client.register_custom_call_partitioner,
            name=TARGET,
            can_side_effecting_have_replicated_sharding=True,
            **callbacks,
        )
    )


_register()
