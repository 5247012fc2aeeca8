"""The partitioner of all calls: XLA asks it for the program of one device when it compiles for several devices.

A call is emitted as ``be.partition.v1`` with its description as JSON. The partitioner keeps nothing between calls, and
a program refers to no object of this process, so JAX's persistent cache works, and programs can be exported. The
program of one device calls the kernel with the device's parts, and sums partial results by an all-reduce.
"""

from __future__ import annotations

import json
import math
from collections import defaultdict
from collections.abc import Iterable, Sequence
from typing import Any

import numpy as np

from be_runtime.errors import GatherWarning, TransformError, warn_caller
from be_runtime.jax.arrays import VMAPPED, Split
from be_runtime.jax.internals import HloSharding, OpSharding, register_partitioner
from be_toolchain.named import NamedTuple

TARGET = "be.partition.v1"
"""Target of split calls, also in exported programs."""


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
        counts = sharding.tile_assignment_dimensions()  # has a further axis if several devices have the same part
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
        """Return groups of devices that together have all parts of the results; empty if each result is whole."""
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
    """Warn of arguments of which a device needs a larger part than it has."""
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
    """Return the reason why each device needs more than its part of an axis that is split into `count` parts."""
    name = factor.rpartition(": ")[2]
    if factor in place.count:
        return f"another array has the axis in {place.count[factor]} parts"
    if factor in split.free:
        undivided = f"{count} devices do not divide the {extent} elements of the axis"
        return undivided if extent % count else "another axis is split there"
    if factor in split.reduce:
        return "sums of parts need JAX 0.7.2 or newer, and Shardy"
    if not name.isidentifier():
        return "the arg_spec does not declare that the kernel works on parts; see parallel[b] and reduce[k]"
    if any(each.rpartition(": ")[2] == name for factors in split.results for each in factors):
        return f"the kernel needs all of it; parallel[{name}] in the arg_spec declares that it can be split"
    return f"the kernel needs all of it; reduce[{name}] in the arg_spec declares that results of parts are summed"


class _Tensor(NamedTuple):
    """The type of an array in MLIR."""

    shape: tuple[int, ...]
    element: str

    def __str__(self) -> str:
        return f"tensor<{''.join(f'{extent}x' for extent in self.shape)}{self.element}>"


def _program(
    config: dict[str, Any], split: Split, operands: Sequence[Any], results: Sequence[Any], groups: Any
) -> bytes:
    """Write the program of one device: the call on its parts, and sums over all parts."""
    ins, outs = (
        [_Tensor(tuple(shape.dimensions()), element) for shape, element in zip(shapes, elements, strict=True)]
        for shapes, elements in zip((operands, results), config["elements"], strict=True)
    )
    body = _loop(config, split, ins, outs) if split.looped else _call(config, split, ins, outs)
    if groups:
        body += [_all_reduce(index, tensor, groups) for index, tensor in enumerate(outs)]
    arguments = ", ".join(f"%a{index}: {tensor}" for index, tensor in enumerate(ins))
    returned = ", ".join(f"%{'t' if groups else 's'}{index}" for index in range(len(outs)))
    lines = "\n".join([*body, f"return {returned} : {_list(outs)}"])
    return f"module {{ func.func public @main({arguments}) -> ({_list(outs)}) {{\n{lines} }} }}".encode()


def _call(
    config: dict[str, Any], split: Split, ins: Sequence[_Tensor], outs: Sequence[_Tensor], operand: str = "%a"
) -> list[str]:
    """Write a call with the operands ``%a0``, ``%a1`` ... whose results are ``%s0``, ``%s1`` ..."""
    given, made = (
        [each._replace(shape=split.kernel_shape(axes, each.shape)) for axes, each in zip(factors, tensors, strict=True)]
        for factors, tensors in ((split.operands, ins), (split.results, outs))
    )
    shapes = [each.shape for each in given]
    batch = outs[0].shape[: sum(factor.startswith(VMAPPED) for factor in split.results[0]) - split.merged]
    made += [_Tensor(shape, "ui8") for shape in split.scratch_shapes(shapes, batch)]
    body = [_reshape(f"b{i}", f"{operand}{i}", *types) for i, types in enumerate(zip(ins, given, strict=True))]
    attributes = _attributes(config["attributes"], split.attributes(shapes))
    names = ", ".join(f"%b{index}" for index in range(len(ins)))
    layouts = [_layouts(*each) for each in zip((given, made), config["layouts"], strict=True)]
    aliases = ", ".join(
        f"#stablehlo.output_operand_alias<output_tuple_indices = {[target] if len(made) > 1 else []}, "
        f"operand_index = {source}, operand_tuple_indices = []>"
        for source, target in config["aliases"]
    )
    body.append(
        f'%r:{len(made)} = "stablehlo.custom_call"({names}) {{call_target_name = "{config["target"]}", '
        f"api_version = 4 : i32, backend_config = {attributes}, operand_layouts = [{layouts[0]}], "
        f"result_layouts = [{layouts[1]}], output_operand_aliases = [{aliases}], "
        f"has_side_effect = {str(config['has_side_effect']).lower()}}} : ({_list(given)}) -> ({_list(made)})"
    )
    return body + [_reshape(f"s{i}", f"%r#{i}", *types) for i, types in enumerate(zip(made, outs, strict=False))]


def _loop(config: dict[str, Any], split: Split, ins: Sequence[_Tensor], outs: Sequence[_Tensor]) -> list[str]:
    """Write a loop over a batch, with a call for one element after the other."""
    sizes, index = outs[0].shape[: split.looped], _Tensor((), "i32")
    lines = [
        f"%{name} = stablehlo.constant dense<{value}> : {index}"
        for name, value in (("zero", 0), ("one", 1), ("count", math.prod(sizes)))
    ]
    for i, tensor in enumerate(outs):
        scalar = tensor._replace(shape=())
        lines.append(f"%z{i} = stablehlo.convert %zero : ({index}) -> {scalar}")
        lines.append(f"%e{i} = stablehlo.broadcast_in_dim %z{i}, dims = [] : ({scalar}) -> {tensor}")
    body = []
    for level, size in enumerate(sizes):
        body += [
            f"%inner{level} = stablehlo.constant dense<{math.prod(sizes[level + 1 :])}> : {index}",
            f"%size{level} = stablehlo.constant dense<{size}> : {index}",
            f"%q{level} = stablehlo.divide %i, %inner{level} : {index}",
            f"%k{level} = stablehlo.remainder %q{level}, %size{level} : {index}",
        ]
    elements = []
    for i, (tensor, factors) in enumerate(zip(ins, split.operands, strict=True)):
        own = split.looped_axes(factors)  # leading axes
        whole = tensor._replace(shape=tensor.shape[len(own) :])
        part = whole._replace(shape=(*[1] * len(own), *whole.shape))
        at = [f"%k{level}" for level in own] + ["%zero"] * len(whole.shape)
        if own:
            body.append(
                f'%p{i} = "stablehlo.dynamic_slice"({", ".join((f"%a{i}", *at))}) '
                f"{{slice_sizes = array<i64: {', '.join(map(str, part.shape))}>}} : "
                f"({_list((tensor, *[index] * len(at)))}) -> {part}"
            )
        body.append(_reshape(f"x{i}", f"%p{i}" if own else f"%a{i}", part, whole))
        elements.append(whole)
    results = [tensor._replace(shape=tensor.shape[len(sizes) :]) for tensor in outs]
    body += _call(config, split.element(), elements, results, "%x")
    for i, (tensor, whole) in enumerate(zip(outs, results, strict=True)):
        part = whole._replace(shape=(*[1] * len(sizes), *whole.shape))
        body.append(_reshape(f"v{i}", f"%s{i}", whole, part))
        at = [f"%k{level}" for level in range(len(sizes))] + ["%zero"] * len(whole.shape)
        body.append(
            f"%u{i} = stablehlo.dynamic_update_slice {', '.join((f'%o{i}', f'%v{i}', *at))} : "
            f"({_list((tensor, part, *[index] * len(at)))}) -> {tensor}"
        )
    carried = ", ".join([f"%i: {index}", *(f"%o{i}: {tensor}" for i, tensor in enumerate(outs))])
    state = ", ".join(["%zero", *(f"%e{i}" for i in range(len(outs)))])
    after = ", ".join(["%next", *(f"%u{i}" for i in range(len(outs)))])
    types = _list((index, *outs))
    body.append(f"%next = stablehlo.add %i, %one : {index}")
    test = f"%c = stablehlo.compare LT, %i, %count : ({index}, {index}) -> tensor<i1>"
    text = "\n".join(body)
    lines.append(
        f'%l:{1 + len(outs)} = "stablehlo.while"({state}) ({{ ^bb0({carried}): {test}\n'
        f'"stablehlo.return"(%c) : (tensor<i1>) -> () }}, {{ ^bb0({carried}): {text}\n'
        f'"stablehlo.return"({after}) : ({types}) -> () }}) : ({types}) -> ({types})'
    )
    return lines + [_reshape(f"s{i}", f"%l#{i + 1}", tensor, tensor) for i, tensor in enumerate(outs)]


def _attributes(known: dict[str, str], computed: dict[str, list[int]]) -> str:
    """Write the attributes of a call; computed ones are arrays, in either of MLIR's forms."""
    for name, numbers in computed.items():
        is_dense = known[name].startswith("dense")
        known[name] = (
            f"dense<{numbers}> : tensor<{len(numbers)}xi64>" if is_dense else f"array<i64: {str(numbers)[1:-1]}>"
        )
    return f"{{{', '.join(f'{json.dumps(name)} = {text}' for name, text in known.items())}}}"


def _list(tensors: Iterable[_Tensor]) -> str:
    return ", ".join(map(str, tensors))


def _reshape(name: str, value: str, before: _Tensor, after: _Tensor) -> str:
    return f"%{name} = stablehlo.reshape {value} : ({before}) -> {after}"


def _layouts(tensors: Sequence[_Tensor], given: Sequence[Sequence[int] | None] | None) -> str:
    """Write the layouts of arrays from minor to major; the layouts in `given` are from major to minor."""
    chosen = [*(given or ()), *[None] * (len(tensors) - len(given or ()))]
    orders = [list(order or range(len(each.shape)))[::-1] for each, order in zip(tensors, chosen, strict=True)]
    return ", ".join(f"dense<{order}> : tensor<{len(order)}xindex>" for order in orders)


def _all_reduce(index: int, tensor: _Tensor, groups: list[list[int]]) -> str:
    one = tensor._replace(shape=())
    return (
        f'%t{index} = "stablehlo.all_reduce"(%s{index}) ({{ ^bb0(%p: {one}, %q: {one}): '
        f'%sum = stablehlo.add %p, %q : {one} "stablehlo.return"(%sum) : ({one}) -> () }}) '
        f"{{replica_groups = dense<{groups}> : tensor<{len(groups)}x{len(groups[0])}xi64>, use_global_device_ids, "
        f"channel_handle = #stablehlo.channel_handle<handle = {index + 1}, type = 1>}} : ({tensor}) -> {tensor}"
    )


def _partition(shapes: Any, shardings: Any, result_shape: Any, result_sharding: Any, text: Any) -> Any:
    """Return the program of one device for XLA, with the shardings of its arguments and results."""
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
    """Return the shardings of the results for XLA's older partitioner, which does not read Shardy's rules."""
    split = Split.from_json(json.loads(text)["split"])
    place = Placement(split, list(zip(split.operands, shardings, shapes, strict=True)))
    outs = [place.sharding(factors) for factors in split.results]
    return HloSharding.tuple_sharding(result_shape, outs) if result_shape.is_tuple() else outs[0]


register_partitioner(TARGET, _partition, _infer)
