"""The partitioner of all calls: XLA asks it for the program of one device when it compiles for several.

A call is emitted as ``be.partition.v1`` with its description as JSON. The partitioner keeps nothing between calls, and
no object of this process is in a program. So JAX's persistent cache finds programs, and programs can be exported. The
program of one device calls the kernel on the device's parts, and sums partial results by an all-reduce.
"""

from __future__ import annotations

import json
import math
from collections import defaultdict
from collections.abc import Sequence
from typing import Any

import numpy as np

from be_runtime.errors import GatherWarning, TransformError, warn_caller
from be_runtime.jax.internals import HloSharding, OpSharding, register_partitioner
from be_runtime.jax.split import VMAPPED, Split

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
        counts = sharding.tile_assignment_dimensions()  # with one more axis where several devices have one part
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
    """Return why each device needs more of an axis that is split into `count` parts."""
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
    if any(each.rpartition(": ")[2] == name for factors in split.results for each in factors):
        return f"the kernel needs all of it; parallel[{name}] in the arg_spec says that it can be split"
    return f"the kernel needs all of it; reduce[{name}] in the arg_spec says that results of parts are summed"


def _program(
    config: dict[str, Any], split: Split, operands: Sequence[Any], results: Sequence[Any], groups: Any
) -> bytes:
    """Write the program of one device: the call on its parts, and sums over all parts."""
    ins = _tensors([tuple(shape.dimensions()) for shape in operands], config["elements"][0])
    outs = _tensors([tuple(shape.dimensions()) for shape in results], config["elements"][1])
    sizes = tuple(results[0].dimensions())[: split.looped]
    axes = [split.looped_axes(factors) for factors in split.operands]
    arrays = [tuple(shape.dimensions())[len(own) :] for shape, own in zip(operands, axes, strict=True)]
    made = [tuple(shape.dimensions())[split.looped :] for shape in results]
    if sizes:
        body = _loop(config, split.element(), sizes, axes, (arrays, made), (ins, outs))
    else:
        body = _call(config, split, arrays, made)
    if groups:
        body += [_all_reduce(i, *each, groups) for i, each in enumerate(zip(outs, config["elements"][1], strict=True))]
    arguments = ", ".join(f"%a{index}: {kind}" for index, kind in enumerate(ins))
    returned = ", ".join(f"%{'t' if groups else 's'}{index}" for index in range(len(outs)))
    lines = "\n".join([*body, f"return {returned} : {', '.join(outs)}"])
    return f"module {{ func.func public @main({arguments}) -> ({', '.join(outs)}) {{\n{lines} }} }}".encode()


def _call(
    config: dict[str, Any],
    split: Split,
    ins: Sequence[tuple[int, ...]],
    outs: Sequence[tuple[int, ...]],
    operand: str = "%a",
) -> list[str]:
    """Write a call of arrays ``%a0``, ``%a1`` ... with these shapes, whose results are ``%s0``, ``%s1`` ..."""
    given = [split.kernel_shape(factors, shape) for factors, shape in zip(split.operands, ins, strict=True)]
    made = [split.kernel_shape(factors, shape) for factors, shape in zip(split.results, outs, strict=True)]
    batch = outs[0][: sum(factor.startswith(VMAPPED) for factor in split.results[0]) - split.merged]
    hidden = split.scratch_shapes(given, batch)
    of_operands, of_results = config["elements"]
    in_types, arg_types = _tensors(ins, of_operands), _tensors(given, of_operands)
    out_types, made_types = _tensors(outs, of_results), _tensors([*made, *hidden], of_results + ["ui8"] * len(hidden))
    pairs = enumerate(zip(in_types, arg_types, strict=True))
    body = [_reshape(f"b{index}", f"{operand}{index}", *types) for index, types in pairs]
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
    pairs = enumerate(zip(made_types, out_types, strict=False))
    return body + [_reshape(f"s{index}", f"%r#{index}", *types) for index, types in pairs]


def _loop(
    config: dict[str, Any],
    element: Split,
    sizes: Sequence[int],
    axes: Sequence[Sequence[int]],
    shapes: tuple[Sequence[tuple[int, ...]], Sequence[tuple[int, ...]]],
    types: tuple[Sequence[str], Sequence[str]],
) -> list[str]:
    """Write a loop over a batch, with a call for one element after the other.

    Parameters
    ----------
    config : dict
    element : Split
        The factors of one element.
    sizes : sequence of int
        Extents of the batch's axes on this device.
    axes : sequence of sequence of int
        Numbers of the batch's axes that each operand has, as its leading axes.
    shapes : pair of sequence of tuple of int
        Shapes of the operands and of the results of one element.
    types : pair of sequence of str
        MLIR's types of the whole operands and results.
    """
    (ins, outs), (of_operands, of_results) = types, config["elements"]
    index = "tensor<i32>"
    number = f"%zero = stablehlo.constant dense<0> : {index}"
    lines = [number, f"%one = stablehlo.constant dense<1> : {index}"]
    lines.append(f"%count = stablehlo.constant dense<{math.prod(sizes)}> : {index}")
    for i, (kind, element_type) in enumerate(zip(outs, of_results, strict=True)):
        scalar = f"tensor<{element_type}>"
        lines.append(f"%z{i} = stablehlo.convert %zero : ({index}) -> {scalar}")
        lines.append(f"%e{i} = stablehlo.broadcast_in_dim %z{i}, dims = [] : ({scalar}) -> {kind}")
    body = []
    for level, size in enumerate(sizes):
        inner = math.prod(sizes[level + 1 :])
        body += [
            f"%inner{level} = stablehlo.constant dense<{inner}> : {index}",
            f"%size{level} = stablehlo.constant dense<{size}> : {index}",
            f"%q{level} = stablehlo.divide %i, %inner{level} : {index}",
            f"%k{level} = stablehlo.remainder %q{level}, %size{level} : {index}",
        ]
    for i, (shape, own) in enumerate(zip(shapes[0], axes, strict=True)):
        (part, whole) = _tensors([(*[1] * len(own), *shape), shape], [of_operands[i]] * 2)
        at = [f"%k{level}" for level in own] + ["%zero"] * len(shape)
        extents = ", ".join(map(str, (*[1] * len(own), *shape)))
        kinds = ", ".join((ins[i], *[index] * len(at)))
        body.append(
            f'%p{i} = "stablehlo.dynamic_slice"({", ".join((f"%a{i}", *at))}) '
            f"{{slice_sizes = array<i64: {extents}>}} : ({kinds}) -> {part}"
            if own
            else _reshape(f"p{i}", f"%a{i}", ins[i], part)
        )
        body.append(_reshape(f"x{i}", f"%p{i}", part, whole))
    body += _call(config, element, shapes[0], shapes[1], "%x")
    for i, shape in enumerate(shapes[1]):
        (part, whole) = _tensors([(*[1] * len(sizes), *shape), shape], [of_results[i]] * 2)
        body.append(_reshape(f"v{i}", f"%s{i}", whole, part))
        at = [*(f"%k{level}" for level in range(len(sizes))), *["%zero"] * len(shape)]
        body.append(
            f"%u{i} = stablehlo.dynamic_update_slice {', '.join((f'%o{i}', f'%v{i}', *at))} : "
            f"({', '.join((outs[i], part, *[index] * len(at)))}) -> {outs[i]}"
        )
    carried = ", ".join([f"%i: {index}", *(f"%o{i}: {kind}" for i, kind in enumerate(outs))])
    kinds = ", ".join([index, *outs])
    state = ", ".join(["%zero", *(f"%e{i}" for i in range(len(outs)))])
    after = ", ".join(["%next", *(f"%u{i}" for i in range(len(outs)))])
    body.append(f"%next = stablehlo.add %i, %one : {index}")
    test = f"%c = stablehlo.compare LT, %i, %count : ({index}, {index}) -> tensor<i1>"
    text = "\n".join(body)
    lines.append(
        f'%l:{1 + len(outs)} = "stablehlo.while"({state}) ({{ ^bb0({carried}): {test}\n'
        f'"stablehlo.return"(%c) : (tensor<i1>) -> () }}, {{ ^bb0({carried}): {text}\n'
        f'"stablehlo.return"({after}) : ({kinds}) -> () }}) : ({kinds}) -> ({kinds})'
    )
    return lines + [_reshape(f"s{i}", f"%l#{i + 1}", kind, kind) for i, kind in enumerate(outs)]


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
    """Write the layouts of arrays from minor to major; the layouts in `given` are from major to minor."""
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
    """Return the program of one device, and the shardings of its arguments and results, to XLA."""
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
    """Return the shardings of the results to XLA's older partitioner, which doesn't read Shardy's rules."""
    split = Split.from_json(json.loads(text)["split"])
    place = Placement(split, list(zip(split.operands, shardings, shapes, strict=True)))
    outs = [place.sharding(factors) for factors in split.results]
    return HloSharding.tuple_sharding(result_shape, outs) if result_shape.is_tuple() else outs[0]


register_partitioner(TARGET, _partition, _infer)
