"""What a function's own text says of launches that XLA's stream does not order; a doubt is never a warning."""

from __future__ import annotations

import pytest

from tests.unit.be_runtime.spec.conftest import Spec

RACES = {
    "plain": "k<<<1, 32>>>(x, y);",
    "template": "k<float, 3><<<dim3(1, 2), f(1, 2)>>>(x);",
    "shared memory": "k<<<1, 32, 128>>>(x);",
    "default": "k<<<1, 32, 0, 0>>>(x);",
    "null": "k<<<1, 32, 0, nullptr>>>(x);",
    "lines": "if (x.numel() > 0) {\n  k<<<1,\n  32>>>(x);\n}",
    "waits too late": "k<<<1, 32>>>(x); cudaDeviceSynchronize();",
    "call": "cudaLaunchKernel((void*)k, 1, 32, args);",
    "call with all": "cudaLaunchKernel(k, dim3(1, 1), dim3(2, 2), args, 0, nullptr);",
    "comment": "/* stream */ k<<<1, 32>>>(x); // stream",
    "second": "helper(x); k<<<1, 32>>>(x);",
}
QUIET = {
    "no launch": "cublas(x, y);",
    "helper": "launch(x, y);",
    "another stream": "k<<<1, 32, 0, mine>>>(x);",
    "another stream in a call": "cudaLaunchKernel(k, 1, 2, args, 0, mine);",
    "configuration in a macro": "k<<<CONFIG>>>(x);",
    "waits first": "cudaDeviceSynchronize(); k<<<1, 32>>>(x); cudaDeviceSynchronize();",
    "text": 'puts("k<<<1, 32>>>(x)");',
    "comment": "// k<<<1, 32>>>(x);\n",
    "dead": "\n#if 0\nk<<<1, 32>>>(x);\n#endif\n",
    "shift": "int i = a << b; i = i >> 2;",
}


USED = {
    "cast": "k<<<1, 32, 0, (cudaStream_t)stream>>>(x);",
    "variable": "auto s = reinterpret_cast<cudaStream_t>(stream); k<<<1, 32, 0, s>>>(x);",
    "helper": "wait_for(stream); k<<<1, 32>>>(x);",
    "lambda": "auto run = [&] { k<<<1, 32, 0, (cudaStream_t)stream>>>(x); }; run();",
}
NO_STREAM = "// @BE f\nvoid f(const BE::Tensor x, BE::Tensor y) {{ {} }}\n"
STREAM = "// @BE f\nvoid f(const BE::Tensor x, BE::Tensor y, int64_t stream) {{ {} }}\n"
WAIT = "#define WAIT() cudaStreamWaitEvent((cudaStream_t)stream, e)\n"


@pytest.mark.parametrize("frame", [NO_STREAM, STREAM], ids=["without", "unused"])
@pytest.mark.parametrize("body", RACES.values(), ids=RACES)
def test_a_launch_on_the_default_stream(spec: Spec, body: str, frame: str):
    assert spec.one(frame.format(body)).launches_out_of_order


@pytest.mark.parametrize("frame", [NO_STREAM, STREAM], ids=["without", "unused"])
@pytest.mark.parametrize("body", QUIET.values(), ids=QUIET)
def test_nothing_is_certain(spec: Spec, body: str, frame: str):
    assert not spec.one(frame.format(body)).launches_out_of_order


@pytest.mark.parametrize(
    "text",
    [
        *(STREAM.format(body) for body in USED.values()),
        WAIT + STREAM.format("WAIT(); k<<<1, 2>>>(x);"),
        "#define MAKE(n) void n(BE::Tensor y) { k<<<1, 2>>>(y); }\n// @BE f\nMAKE(f)\nvoid g() { k<<<1, 2>>>(); }\n",
        STREAM.format("g(y);") + "void g(BE::Tensor y) { k<<<1, 2>>>(y); }\n",
    ],
    ids=[*USED, "in a macro", "a function that a macro makes", "another function"],
)
def test_the_stream_is_used_or_the_body_is_not_its_own(spec: Spec, text: str):
    assert not spec.one(text).launches_out_of_order


def test_a_stream_without_a_name(spec: Spec):
    text = "// @BE f\nvoid f(const BE::Tensor x, BE::Tensor y, cudaStream_t) noexcept { k<<<1, 2>>>(y); }\n"
    assert spec.one(text).launches_out_of_order
