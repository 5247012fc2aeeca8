"""A partitioner for all calls: XLA asks it for the program of one device, when it compiles for several.

A call is emitted as ``be.partition.v1`` with everything that is known of it as JSON. The partitioner keeps nothing
between calls, and no object of this process is in a program. So JAX's persistent cache finds programs, and they can be
exported. What it makes is the call itself, on the parts, and an all-reduce for partial sums.
"""

from __future__ import annotations

import json
import math
from collections import defaultdict
from collections.abc import Sequence
from typing import Any

import numpy as np

from be_runtime.errors import GatherWarning, TransformError, warn_caller
from be_runtime.xla.jax_internals import HloSharding, OpSharding, register_partitioner
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
            if sharding is not None and sharding.is_tiled():
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
            return HloSharding.replicate()
        groups = self.groups(factors)
        tiles = np.empty((*(self.count.get(f, 1) for f in factors), len(next(iter(groups.values())))), int)
        for at, devices in groups.items():
            tiles[at] = devices
        sharding = OpSharding()
        sharding.type, sharding.replicate_on_last_tile_dim = OpSharding.Type.OTHER, True
        sharding.tile_assignment_dimensions = list(tiles.shape)
        sharding.tile_assignment_devices = tiles.ravel().tolist()
        return HloSharding.from_proto(sharding)

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
            if count <= place.count.get(factor, 1):
                continue
            name = factor.rpartition(": ")[2]
            where = name if name == f"axis {axis}" else f"{name} (axis {axis})"
            text = (
                f"{label}: argument {number} is gathered for each device along {where}: "
                f"{_reason(split, place, factor, count, shape.dimensions()[axis])}"
            )
            if split.on_gather == "error":
                raise TransformError(text)
            warn_caller(text, GatherWarning)


def _reason(split: Split, place: Placement, factor: str, count: int, extent: int) -> str:
    """Say why each device needs more of an axis that is split in so many parts."""
    name = factor.rpartition(": ")[2]
    if factor in place.count:
        return f"another array has it in {place.count[factor]} parts"
    if factor in split.free:
        return (
            f"{count} devices do not divide its {extent} elements" if extent % count else "another axis is split there"
        )
    if factor in split.reduce:
        return "sums of parts need JAX 0.7.2 or newer, and Shardy"
    if not name.isidentifier():
        return "the arg_spec does not say that the kernel works on parts; see parallel[b] and reduce[k]"
    return f"the kernel needs all of it; parallel[{name}] in the arg_spec says that it can be split"


def _program(
    config: dict[str, Any], split: Split, operands: Sequence[Any], results: Sequence[Any], groups: Any
) -> bytes:
    """Write the program of one device: the call on its parts, and sums over all parts."""
    ins = [tuple(shape.dimensions()) for shape in operands]
    outs = [tuple(shape.dimensions()) for shape in results]
    given = [split.kernel_shape(factors, shape) for factors, shape in zip(split.operands, ins, strict=True)]
    made = [split.kernel_shape(factors, shape) for factors, shape in zip(split.results, outs, strict=True)]
    batch = outs[0][: sum(factor.startswith(VMAPPED) for factor in split.results[0]) - split.merged]
    hidden = split.scratch_shapes(given, batch)
    of_operands, of_results = config["elements"]
    in_types, arg_types = _tensors(ins, of_operands), _tensors(given, of_operands)
    out_types, made_types = _tensors(outs, of_results), _tensors([*made, *hidden], of_results + ["ui8"] * len(hidden))
    body = [
        _reshape(f"b{index}", f"%a{index}", *types) for index, types in enumerate(zip(in_types, arg_types, strict=True))
    ]
    attributes = _attributes(config["attributes"], split.attributes(given))
    names = ", ".join(f"%b{index}" for index in range(len(ins)))
    layouts = [_layouts(given, config["layouts"][0]), _layouts([*made, *hidden], config["layouts"][1])]
    aliases = ", ".join(_alias(source, target, len(made_types)) for source, target in config["aliases"])
    body.append(
        f'%r:{len(made_types)} = "stablehlo.custom_call"({names}) {{call_target_name = "{config["target"]}", '
        f"api_version = 4 : i32, backend_config = {attributes}, operand_layouts = [{layouts[0]}], "
        f"result_layouts = [{layouts[1]}], output_operand_aliases = [{aliases}], "
        f"has_side_effect = {str(config['has_side_effect']).lower()}}} : "
        f"({', '.join(arg_types)}) -> ({', '.join(made_types)})"
    )
    for index, (made_type, out_type) in enumerate(zip(made_types, out_types, strict=False)):
        body.append(_reshape(f"s{index}", f"%r#{index}", made_type, out_type))
        if groups:
            body.append(_all_reduce(index, out_type, of_results[index], groups))
    arguments = ", ".join(f"%a{index}: {kind}" for index, kind in enumerate(in_types))
    returned = ", ".join(f"%{'t' if groups else 's'}{index}" for index in range(len(outs)))
    lines = "\n".join([*body, f"return {returned} : {', '.join(out_types)}"])
    return f"module {{ func.func public @main({arguments}) -> ({', '.join(out_types)}) {{\n{lines} }} }}".encode()


def _attributes(known: dict[str, str], computed: dict[str, list[int]]) -> str:
    """Write the attributes of a call; computed ones are arrays, in either of MLIR's forms."""
    for name, numbers in computed.items():
        is_dense = known[name].startswith("dense")
        known[name] = (
            f"dense<{numbers}> : tensor<{len(numbers)}xi64>" if is_dense else f"array<i64: {str(numbers)[1:-1]}>"
        )
    return f"{{{', '.join(f'{json.dumps(name)} = {text}' for name, text in known.items())}}}"


def _tensors(shapes: Sequence[Sequence[int]], elements: Sequence[str]) -> list[str]:
    pairs = zip(shapes, elements, strict=True)
    return [f"tensor<{''.join(f'{extent}x' for extent in shape)}{element}>" for shape, element in pairs]


def _reshape(name: str, value: str, before: str, after: str) -> str:
    return f"%{name} = stablehlo.reshape {value} : ({before}) -> {after}"


def _layouts(shapes: Sequence[Sequence[int]], given: Sequence[Sequence[int] | None] | None) -> str:
    """Write the layouts of arrays, axes from minor to major; those of `given` are from major to minor."""
    chosen = [*(given or ()), *[None] * (len(shapes) - len(given or ()))]
    orders = [list(order or range(len(shape)))[::-1] for shape, order in zip(shapes, chosen, strict=True)]
    return ", ".join(f"dense<{order}> : tensor<{len(order)}xindex>" for order in orders)


def _alias(source: int, target: int, count: int) -> str:
    where = f"[{target}]" if count > 1 else "[]"
    return (
        f"#stablehlo.output_operand_alias<output_tuple_indices = {where}, operand_index = {source}, "
        "operand_tuple_indices = []>"
    )


def _all_reduce(index: int, kind: str, element: str, groups: list[list[int]]) -> str:
    one = f"tensor<{element}>"
    return (
        f'%t{index} = "stablehlo.all_reduce"(%s{index}) ({{ ^bb0(%p: {one}, %q: {one}): '
        f'%sum = stablehlo.add %p, %q : {one} "stablehlo.return"(%sum) : ({one}) -> () }}) '
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
    return program, ins, HloSharding.tuple_sharding(result_shape, outs) if several else outs[0]


def _infer(shapes: Any, shardings: Any, result_shape: Any, text: Any) -> Any:
    """Answer XLA's older partitioner, which doesn't read rules of Shardy: the shardings of the results."""
    split = Split.from_json(json.loads(text)["split"])
    place = Placement(split, list(zip(split.operands, shardings, shapes, strict=True)))
    outs = [place.sharding(factors) for factors in split.results]
    return HloSharding.tuple_sharding(result_shape, outs) if result_shape.is_tuple() else outs[0]


register_partitioner(TARGET, _partition, _infer)
