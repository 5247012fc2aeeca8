"""Triton's decorators: configurations are those of `be_runtime.autotune`, heuristics compute constants in a trace."""

# ruff: noqa: ANN001, N803 - Triton finds the types of a kernel's parameters
# mypy: disable-error-code="untyped-decorator"

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from types import SimpleNamespace
from typing import Any
from uuid import uuid4

import jax
import numpy as np
import pytest

from be_runtime import ArgumentError, BuildError, RegistrationError, triton_kernel
from be_runtime.jax import transforms
from be_runtime.kernels.geometry import descriptor_param
from be_runtime.load.process import PROCESS
from be_runtime.ship.kernels import build_function
from be_runtime.tune import timing
from be_runtime.tune.timing import Trial
from tests.support.kernel_calls import attributes, kernel_calls
from tests.support.requirements import OPTIONAL

triton: Any = pytest.importorskip("triton", reason=f"{OPTIONAL}triton", exc_type=ImportError)
import triton.language as tl  # noqa: E402

from tests.support.triton_kernels import add  # noqa: E402

ADD = "arg[... n] arg[... n] ret[... n] attr.scale:float32"
X = np.zeros(4000, np.float32)
CONFIGS = [triton.Config({"BLOCK": 512}, num_warps=4), triton.Config({"BLOCK": 1024}, num_warps=8)]

GPU = SimpleNamespace(platform="gpu", device_kind="a GPU", compute_capability="9.0")


@pytest.fixture(autouse=True)
def _fusion(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("TRITON_DEFAULT_FP_FUSION", "1")  # else Triton 3.9 warns


def tuned(configs: Sequence[Any] = CONFIGS, **more: Any) -> Any:
    return triton.autotune(list(configs), **{"key": ["n"], **more})(add)


def function(kernel: Any, signature: str = ADD, **options: Any) -> Any:
    return triton_kernel(kernel, signature, **{"grid": "ceil(n/BLOCK)", **options})


def launch(call: Any, x: Any = X, **attrs: Any) -> list[int]:
    (equation,) = kernel_calls(lambda x: call(x, x, **{"scale": 2, **attrs}), x)
    found: list[int] = attributes(equation)["launch"].tolist()
    return found


def blocks_and_threads(call: Any, x: Any = X, **attrs: Any) -> tuple[int, int]:
    numbers = launch(call, x, **attrs)
    return numbers[0], numbers[3]


def test_a_program_takes_the_first_configuration_while_nothing_is_known():
    call = function(tuned())
    assert blocks_and_threads(call) == (8, 128)
    assert call.config(X, X, scale=2) == {"BLOCK": 512, "num_warps": 4, "num_stages": 3, "num_ctas": 1}
    assert "not tuned yet: 2 configurations" in str(call)
    with pytest.raises(ArgumentError, match="JAX has no GPU here"):
        call.tune(X, X, scale=2)


@triton.jit
def salted(x, y, out, n, scale, BLOCK: tl.constexpr, SALT: tl.constexpr):
    i = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    tl.store(out + i, tl.load(x + i, mask=i < n) + scale * tl.load(y + i, mask=i < n) + SALT * 0, mask=i < n)


def test_the_fastest_is_kept_by_sizes_and_by_attributes_in_the_key(monkeypatch: pytest.MonkeyPatch):
    timed = []

    def time_configs(make: Any, configs: Sequence[Any], arrays: Sequence[Any], *_: Any) -> Any:
        launches = [kernel_calls(make(config), *arrays)[0] for config in configs]
        timed.append([attributes(each)["launch"][3] for each in launches])
        return 1, tuple(map(Trial, configs)), {0: 2.0, 1: 1.0}

    monkeypatch.setattr(timing, "time_configs", time_configs)
    monkeypatch.setattr(transforms, "default_device", lambda: GPU)
    salt = uuid4().int % 2**30  # the cache keeps what earlier runs of this test chose
    configs = [*CONFIGS, triton.Config({"BLOCK": 512}, num_warps=4)]
    calls = [
        function(triton.autotune(configs, key=["n", "scale"])(salted), ADD.replace("float32", "int32"), SALT=salt)
        for _ in range(2)
    ]
    assert blocks_and_threads(calls[0], scale=1) == (8, 128)
    assert calls[0].tune(X, X, scale=1).chosen["BLOCK"] == 1024
    assert timed == [[128, 256]], "equal configurations are timed once"
    assert blocks_and_threads(calls[0], scale=1) == (4, 256), "the program is traced anew"
    call = calls[1]
    assert blocks_and_threads(call, X[:3000], scale=1) == (3, 256), "sizes between the same powers of two"
    (mapped,) = kernel_calls(jax.vmap(lambda x: call(x, x, scale=1)), np.stack([X, X]))
    assert attributes(mapped)["launch"][3] == 256
    assert "choices that are kept" in str(call)
    assert call.tune(np.stack([X, X]), np.stack([X, X]), scale=1).bucket == "float32[4096] float32[4096] scale=1"
    with pytest.raises(ArgumentError, match="can't be tuned within a program"):
        jax.jit(lambda x: call.tune(x, x, scale=1))(X)
    monkeypatch.setenv("BE_AUTOTUNE", "off")
    off = function(triton.autotune(configs, key=["n"])(salted), ADD.replace("float32", "int32"), SALT=salt)
    assert blocks_and_threads(off, scale=1) == (8, 128)


def test_a_call_outside_of_a_program_times_once(monkeypatch: pytest.MonkeyPatch):
    """As on a GPU, except that the call itself is refused, since there is none."""
    timed: list[Any] = []

    def time_configs(_make: Any, configs: Sequence[Any], arrays: Sequence[Any], *_: Any) -> Any:
        timed.append([each.shape for each in arrays])
        return 1, tuple(map(Trial, configs)), {0: 2.0, 1: 1.0}

    def run(call: Any, x: Any, **attrs: Any) -> None:
        with pytest.raises(RegistrationError, match="salted has no kernel for cpu"):
            call(x, x, **{"scale": 1, **attrs})

    monkeypatch.setattr(timing, "time_configs", time_configs)
    monkeypatch.setattr(transforms, "default_device", lambda: GPU)
    salt = uuid4().int % 2**30
    signature, kernel = ADD.replace("float32", "int32"), triton.autotune(CONFIGS, key=[])(salted)
    call, again = (function(kernel, signature, SALT=salt) for _ in range(2))
    with monkeypatch.context() as context:
        context.setenv("BE_AUTOTUNE", "cached")
        run(call, X)
    jax.make_jaxpr(lambda: call(X, X, scale=1))()
    kernel_calls(lambda x: call(x, x, scale=1), X)
    assert timed == []
    for each, x in ((call, X), (call, X), (call, X[:3000]), (again, X), (call, X[:2000]), (call, [1.0, 2.0])):
        run(each, x)
    run(function(triton.autotune(CONFIGS[:1], key=[])(salted), signature, SALT=salt), X)
    assert timed == [[(4000,)] * 2, [(2000,)] * 2], "one configuration needs no timing"


def next_power(given: Mapping[str, Any]) -> Any:
    return triton.next_power_of_2(given["n"])


def even(given: Mapping[str, Any]) -> Any:
    return given["n"] % given["BLOCK"] == 0


@triton.jit
def described(x, out, n, scale, BLOCK: tl.constexpr, EVEN: tl.constexpr):
    i = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    if EVEN:
        tl.store(out + i, scale * tl.load(x + i))
    else:
        tl.store(out + i, scale * tl.load(x + i, mask=i < n), mask=i < n)


COPY = "arg[n] ret[n] attr.scale:float16"


def launch_of(call: Any, x: Any) -> Any:
    (equation,) = kernel_calls(lambda x: call(x, scale=2), x)
    return attributes(equation)["kernel"], attributes(equation)["launch"].tolist()


@pytest.mark.parametrize("is_outside", [False, True])
def test_heuristics_compute_constants_from_a_call(is_outside: bool):
    seen: list[dict[str, Any]] = []

    def note_and_compare(given: dict[str, Any]) -> Any:
        seen.append(given)
        return even(given)

    by = triton.heuristics({"BLOCK": next_power, "EVEN": note_and_compare})
    tune = triton.autotune([triton.Config({}, num_warps=2), triton.Config({}, num_warps=1)], key=[])
    call = function(by(tune(described)) if is_outside else tune(by(described)), COPY)
    even_id, numbers = launch_of(call, X[:512])
    assert numbers[:4] == [1, 1, 1, 64]
    odd_id, numbers = launch_of(call, X[:500])
    assert numbers[:4] == [1, 1, 1, 64]
    plain = [
        triton_kernel(described, COPY, grid=1, BLOCK=512, EVEN=each, num_warps=2, num_stages=3, num_ctas=1)
        for each in (True, False)
    ]
    assert [even_id, odd_id] == [launch_of(plain[0], X[:512])[0], launch_of(plain[1], X[:500])[0]]
    first = seen[0]
    assert (first["n"], first["scale"], first["BLOCK"], first["num_warps"]) == (512, 2.0, 512, 2)
    x = first["x"]
    assert (x.shape, x.dtype, x.ndim, x.numel(), x.element_size()) == ((512,), np.float32, 1, 512, 4)
    only = function(by(described), COPY)
    assert launch_of(only, X[:512])[1][:4] == [1, 1, 1, 128]


def test_a_heuristic_may_choose_an_option():
    call = function(triton.heuristics({"num_warps": lambda given: 8 if given["n"] > 1000 else 1})(add), BLOCK=64)
    assert (blocks_and_threads(call), blocks_and_threads(call, X[:128])) == ((63, 256), (2, 32))


def test_a_call_with_heuristics_is_not_split_by_the_compiler():
    call = function(triton.heuristics({"BLOCK": next_power, "EVEN": even})(described), COPY + " parallel[n]")
    (equation,) = kernel_calls(lambda x: call(x, scale=2), X)
    assert equation.params["call"].split.computed is None, "a part may need another constant"


def test_configurations_are_pruned_by_the_arguments_of_a_call():
    def small(configs: Sequence[Any], given: Mapping[str, Any], **constants: Any) -> Any:
        assert constants == {}
        return [each for each in configs if each.kwargs["BLOCK"] <= given["n"] // 4]

    def slow(n: int, BLOCK: int, num_warps: int, **_: Any) -> float:
        return -n * BLOCK * num_warps

    pruned = tuned([*reversed(CONFIGS), triton.Config({"BLOCK": 256})], prune_configs_by={"early_config_prune": small})
    assert blocks_and_threads(function(pruned)) == (8, 128) if X.size < 4096 else (4, 256)
    best = tuned(prune_configs_by={"perf_model": slow, "top_k": 1})
    assert blocks_and_threads(function(best)) == (4, 256)
    with pytest.raises(ArgumentError, match="prune_configs_by raised AutotunerError"):
        launch(function(pruned), X[:8])


@triton.autotune([triton.Config({"BLOCK": 64}), triton.Config({"BLOCK": 32})], key=[])
@triton.jit
def copied(x, out, BLOCK: tl.constexpr):
    tl.store(out + tl.arange(0, BLOCK), x.load([0]))


def test_a_configuration_sets_the_blocks_of_descriptors():
    call = triton_kernel(copied, "arg[n] ret[n]", grid=1, block_shapes={"x": ("BLOCK",)}, compute_capability="sm_90")
    (equation,) = kernel_calls(call, X[:64])
    assert attributes(equation)["params"][2] == descriptor_param(0, [64], 32, 0, 7)[2]


def hook(*_: Any, **__: Any) -> None: ...


def test_what_would_run_at_a_launch_or_does_not_fit_is_refused():
    refused: list[tuple[Any, dict[str, Any], str]] = [
        (tuned(pre_hook=hook), {}, "autotune has a pre_hook, and no Python runs at a launch"),
        (tuned(post_hook=hook), {}, "autotune has a post_hook"),
        (tuned([triton.Config({"BLOCK": 64}, pre_hook=hook)]), {}, r"a configuration .*{'BLOCK': 64}, has a pre_hook"),
        (triton.autotune(CONFIGS, key=[])(tuned()), {}, "@triton.autotune twice"),
        (tuned(reset_to_zero=["out"]), {}, "reset_to_zero has out, and the memory of a ret is not cleared"),
        (tuned(), {"BLOCK": 64}, "BLOCK is given, and @triton.autotune chooses it"),
        (tuned(), {"num_warps": 2}, "num_warps is given, and @triton.autotune chooses it"),
        (tuned([triton.Config({"SIZE": 64})]), {}, "add has no constant SIZE"),
        (tuned([triton.Config({"BLOCK": 64}, num_warps=3)]), {}, "num_warps=3 is not allowed"),
        (triton.heuristics({"SIZE": even})(add), {}, "add has no constant SIZE"),
    ]
    for kernel, options, message in refused:
        with pytest.raises(ArgumentError, match=message):
            function(kernel, **options)
    cleared = triton.autotune([triton.Config({"BLOCK": 64})], key=[], reset_to_zero=["x"], restore_value=["x"])(add)
    function(cleared, "inout[n] arg[n] ret[n] attr.scale:float32")
    call = function(triton.heuristics({"BLOCK": lambda given: given["x"].data_ptr()})(add))
    with pytest.raises(ArgumentError, match=r"(?s)the heuristic of BLOCK raised AttributeError.*an array has shape"):
        launch(call)


@triton.jit
def strict(x, out, n, BLOCK: tl.constexpr):
    tl.static_assert(BLOCK < 1024, "too large")
    if BLOCK == 64:
        tl.arange(0, 3)
    tl.store(out + tl.arange(0, BLOCK), tl.load(x + tl.arange(0, BLOCK)))


def of_blocks(*blocks: int) -> Any:
    configs = [triton.Config({"BLOCK": each}) for each in blocks]
    return triton_kernel(triton.autotune(configs, key=[])(strict), "arg[n] ret[n]", grid="ceil(n/BLOCK)")


def test_a_program_skips_the_configurations_that_triton_would_skip():
    (equation,) = kernel_calls(of_blocks(2048, 1024, 512, 256), X[:512])
    assert attributes(equation)["launch"][0] == 1
    for blocks, named in (((2048, 1024), 2048), ((64, 512), 64), ((2048, 64, 512), 64)):
        with pytest.raises(BuildError, match=rf'(?s)this was the configuration {{"BLOCK": {named}, ') as caught:
            kernel_calls(of_blocks(*blocks), X[:512])
        assert len(caught.value.hints) == 1


def test_a_timing_without_success_names_the_configuration(monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setattr(transforms, "default_device", lambda: GPU)
    monkeypatch.setattr(transforms, "results_of", lambda function, arrays, _: kernel_calls(function, *arrays))
    with pytest.raises(BuildError, match=r"this was the configuration .*2048"):
        of_blocks(2048, 1024).tune(X[:512])


KEPT = tuned()


def test_a_package_names_one_configuration(tmp_path: Path):
    table = {"triton": f"{__name__}:KEPT", "signature": ADD, "grid": "ceil(n/BLOCK)"}

    def build(**more: Any) -> Any:
        return build_function("add", {**table, **more}, "pkg", tmp_path, ["9.0"], "", PROCESS.session())

    with pytest.raises(ArgumentError, match=r"(?s)@triton.autotune, and code that is built .*kernel\.fn"):
        build()
    part = build(triton=f"{__name__}:KEPT.fn", constants={"BLOCK": 256}, num_warps=8)
    assert part.functions["add"]["launch"] == {"grid": "ceil(n/256)"}
