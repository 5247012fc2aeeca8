"""Inputs that nobody would write: arg_specs from their grammar, sources and documents from real ones, all damaged.

Every function takes the randomness that it uses, so that a seed names an input.
"""

from __future__ import annotations

import json
import random
import re
import signal
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from functools import cache
from pathlib import Path
from types import FrameType
from typing import Any

from tests.support.faults import Tally
from tests.support.speed import usual_seconds

ROOT = Path(__file__).resolve().parents[2]
LONGEST_S = 5.0
"""Processor time that any input may take, on a usual machine."""
LARGEST = 1 << 16
"""Characters of the longest input."""
_GIVEN_UP_S = 60.0
_SHOWN = 300

GOOD_NAMES = ("n", "k", "m")
NAMES = (*GOOD_NAMES, "f", "attr", "outs", "x1", "_", "lambda", "None", "é", "ñ", "be_present")
GOOD_DTYPES = ("float32", "int64", "bool", "uint8")
DTYPES = (*GOOD_DTYPES, "bfloat16", "complex64", "float8_e4m3fn", "int4", "string", "dtype", "float")
SIGNS = (*"[](){}<>:;,.=?*&|+-/%#\"'\\ \t\n\r\0@_", "...", "::", "->", "##", "/*", "*/", "//", 'R"(', ')"')
ODD = (
    *("\0", "\ufeff", "\u2028", "\u200b", "\x85", "\x0c", "\u0663", "\uff11", "\U0001d52b", "é", "e\u0301", "\udc80"),
    *("\ud800", "\U0010ffff", "\r\n", "\r", "\\\r\n", "\\\n", "\\ \n"),
    *("9" * 5000, "1e400", "-0", "0x", "1_000", "1'0", "\x1b[2J"),
)
CPP = (
    *("// @BE f\n", "// @BE f arg ret\n", "// @BE f arg[n] ret[n]:like(0) attr.n:int32=3 stream\n", "//@BE\n"),
    *(
        "/// doc\n",
        "void f(const BE::Tensor x, BE::Tensor y) {",
        "}",
        "{",
        "};",
        "(",
        ")",
        "<",
        ">",
        "[[",
        "]]",
        ";",
        ",",
        "\n",
    ),
    *("template <class T>", "template <", "namespace a {", "namespace a::b {", 'extern "C" {', "struct S { int n; };"),
    *("enum class M { a, b = 1 };", "enum", "union", "class A : public B {", "operator()", "auto f() -> void"),
    *("#define D(N) void N(BE::Tensor y)\n", "#define D D\n", "#define E(x) E2(x x)\n", "D(f)", "E(E(E(f)))"),
    *(
        "#undef D\n",
        "#if 0\n",
        "#if 1\n",
        "#if X\n",
        "#ifdef A\n",
        "#elif 0\n",
        "#else\n",
        "#endif\n",
        "#include <x>\n",
        "#",
        "##",
    ),
    *('R"(', ')"', 'R"x(', 'u8R"delim(', '"', "'", "'\\''", "L'", "/*", "*/", "//", "// \\\n", "\\\n", "\\", "1'000"),
    *("__attribute__((", "__declspec(", "alignas(", "decltype(", "typename", "const", "volatile", "&&", "*", "..."),
    *("__global__ void k(float* x, int n) {", "k<<<1, 2, 0, s>>>(x);", "cudaLaunchKernel(", "<<<"),
    *("using namespace BE;", "BE::Span<const int> v", "noexcept(", "::", "'{'", "std::optional<BE::Tensor> o"),
    *('std::string_view t = "x"', "= 0.1f", "= -", "int n = 3", "BE::Workspace w", "BE::State<S>& s"),
)


# What is done with an input


class TooLongError(BaseException):
    """An input was given up."""


@contextmanager
def time_limit() -> Iterator[None]:
    """Give inputs up that take far too long; regular expressions notice signals as well."""

    def give_up(_number: int, _frame: FrameType | None) -> None:
        raise TooLongError

    before = signal.signal(signal.SIGPROF, give_up)
    try:
        yield
    finally:
        signal.setitimer(signal.ITIMER_PROF, 0)
        signal.signal(signal.SIGPROF, before)


def judge(tally: Tally, allowed: tuple[type[Exception], ...], read: Callable[..., object], *given: object) -> bool:
    """Hand an input to its reader inside a `time_limit`; return whether it was taken, and not refused by our error."""
    taken, problem = False, ""
    signal.setitimer(signal.ITIMER_PROF, _GIVEN_UP_S)
    began = time.thread_time()
    try:
        read(*given)
        taken = True
    except allowed:
        pass
    except TooLongError:
        problem = "given up"
    except Exception as error:  # noqa: BLE001 - any other error is what is looked for
        problem = f"{type(error).__name__}: {error}"[:_SHOWN]
    took_s = time.thread_time() - began
    signal.setitimer(signal.ITIMER_PROF, 0)
    if took_s > LONGEST_S and not problem and usual_seconds(took_s) > LONGEST_S:
        problem = "slow"
    tally.tried += 1
    if problem:
        tally.wrong.append(f"{problem} after {took_s:.1f} s: {', '.join(map(_shown, given))}")
    return taken


def _shown(given: object) -> str:
    text = ascii(given)
    return text if len(text) <= _SHOWN else f"{text[:_SHOWN]}… {len(text)} characters"


# arg_specs


ODD_DEFAULTS = (
    "-1",
    "3.5",
    "inf",
    "nan",
    "1e400",
    "1_0",
    " 3",
    "300",
    "\u0663",
    "-0.0",
    "2147483648",
    "9" * 4301,
    "a",
    "",
)
GRAMMAR: dict[str, tuple[str, ...]] = {
    "name": (*GOOD_NAMES * 9, *NAMES),
    "dtype": (*GOOD_DTYPES * 15, *DTYPES),
    "number": (*("0", "1", "2", "3", "255") * 9, *map(str, (2**31, 2**63 - 1, 2**63, 2**64))),
    "sum": ("<expression>+<expression>", "<expression>-<expression>", "<expression>*<expression>", "-<expression>"),
    "ratio": ("<expression>//<expression>", "<expression>/<expression>", "<expression>%<expression>"),
    "call": ("sizeof(<variable>)", "sizeof(<dtype>)", "<name>()", "sizeof()", "sizeof(<name>)"),
    "of two": ("ceil(<expression>/<expression>)", "min(<expression>, <expression>)", "max(<expression>,<expression>)"),
    "expression": (
        "<name>",
        "<number>",
        "attr.<name>",
        "n",
        "k",
        "<sum>",
        "<ratio>",
        "(<expression>)",
        "<of two>",
        "<call>",
    ),
    "axis": ("<name>", "0", "1", "2", "3", "4", "<name>", "<expression>"),
    "axes": ("<axis>", "", "<axis>", "<axis> <axis>", "<axis> <axis> <axis>", "... <axis>", "...", "... <axis> <axis>"),
    "field": ("<name>:<type><default>",),
    "fields": ("<field>", "", "<field> <field>", "<field> <field> <field>"),
    "type": (*("<dtype>",) * 3, "<dtype>[]", "enum(<name>)", "enum(<name> <name> <name>)", "{<fields>}"),
    "default": ("", "", "=0", "=1", "=true", "=3", "=<odd default>"),
    "odd default": ODD_DEFAULTS,
    "bracket": ("[<axes>]", "[<axes>]", ""),
    "many": ("", "", "", "?", "..."),
    "variable": (*("T",) * 9, "U", "<name>"),
    "array": (
        *("arg<many><bracket>", "args<many><bracket>", "arg<many><bracket>:<dtype>", "arg<many><bracket>:<variable>"),
        *("arg<bracket>:like(0)", "arg<bracket>:attr.<name>", "inout<bracket><like>"),
    ),
    "variables": ("<variable>=<dtype>", "<variable>=<dtype>|<dtype>", "T=float32|int8", "<name>=<dtype>|"),
    "like": (
        "",
        "",
        ":<dtype>",
        ":<variable>",
        "<default>",
        ":like(0)",
        ":like(1)",
        ":like(2)",
        ":attr.<name>",
        ":like(999)",
    ),
    "result": ("ret<many><bracket><like>", "rets<many><bracket><like>"),
    "attribute": (*("attr.<name>:<type><default>",) * 4, "attrs.<name>:<type>", "attr.<name><default>"),
    "more": (
        *("stream", "ctx.stream", "scratch", "state", "scratch[<expression>]", "scratch=<name>", "<variables>"),
        *("scalar.<name>:<dtype><default>", "scalar.<name>:<type>", "T=float32|float64"),
    ),
    "spread": ("parallel[<name>]", "reduce[<name> <name>]", "parallel[]"),
    "token": (*("<array>",) * 4, *("<result>",) * 3, *("<attribute>",) * 3, "<more>", "<spread>"),
}
"""What a word in angles may be; where it gets deep, the first."""


def grown(rng: random.Random, word: str, depth: int = 0) -> str:
    """What `GRAMMAR` makes of a word."""
    text = rng.choice(GRAMMAR[word][: None if depth < 9 else 1])
    return re.sub("<([a-z ]+)>", lambda found: grown(rng, found[1], depth + 1), text)


def damaged(rng: random.Random, text: str, parts: tuple[str, ...]) -> str:
    """A text with a few things done to it, at most `LARGEST` characters long."""
    for _ in range(rng.choice((1, 1, 1, 2, 3, 8))):
        low = rng.randrange(len(text) + 1)
        high = min(len(text), low + rng.choice((0, 1, 1, 2, 10, 100, len(text))))
        piece = text[low:high]
        part, odd = rng.choice(parts), rng.choice(ODD)
        repeated = piece * rng.choice((2, 2, 3, 50)), part * rng.choice((2, 3, 100))
        new = rng.choice(("", part, odd, piece[::-1], *repeated, piece.swapcase(), chr(rng.randrange(0x110000))))
        text = text[:low] + new + text[high:]
    return text[:LARGEST]


def arg_spec(rng: random.Random) -> list[str]:
    """The tokens of an arg_spec: as the grammar has them, damaged, or nothing but noise."""
    tokens = [grown(rng, "token") for _ in range(rng.choice((0, 1, 2, 2, 3, 3, 4, 6, 12)))]
    kind = rng.random()
    if kind < 0.5:
        tokens = [*["arg[n k]", "arg[m]"] * (rng.random() < 0.7), *tokens, *["ret"] * (rng.random() < 0.7)]
    elif kind < 0.95 and tokens:
        at = rng.randrange(len(tokens))
        tokens[at] = damaged(rng, tokens[at], SIGNS + NAMES + DTYPES)
    elif kind < 0.99:
        tokens.append("".join(rng.choice(SIGNS + NAMES + DTYPES) for _ in range(rng.randrange(60))))
    else:
        openings = ("arg[", "ret[", "attr.x:{", "enum(", "n(", "min(", "attr.a:", "(b) ")
        tokens.append(long_text(rng, (*SIGNS, *NAMES, *openings)))
    return tokens


def long_text(rng: random.Random, parts: tuple[str, ...]) -> str:
    """A long repetition of something short, behind something and before something."""
    counts = rng.choice((1, 1, 2, 3, 5)), rng.randrange(4), rng.randrange(4)
    unit, head, tail = ("".join(rng.choices(parts, k=count)) for count in counts)
    count = rng.choice((100, 1000, LARGEST)) // max(1, len(unit))
    return f"{head}{unit * count}{tail}"[: LARGEST + 100]


# Sources


@cache
def real_sources() -> tuple[str, ...]:
    """Kernels of the examples, the tests and the pages, and our own headers."""
    texts = []
    for folder in ("examples", "tests/support", "tests/cuda", "tests/gpu", "tests/compile", "be_runtime"):
        for ending in ("*.cu", "*.cuh", "*.cc", "*.h"):
            texts += [path.read_text(encoding="utf-8") for path in sorted((ROOT / folder).rglob(ending))]
    for page in (*sorted((ROOT / "docs").glob("*.md")), ROOT / "README.md"):
        texts += re.findall(r'r?"""(\n#include .*?)"""', page.read_text(encoding="utf-8"), re.DOTALL)
        texts += re.findall(r"```(?:cpp|cuda|c\+\+)\n(.*?)```", page.read_text(encoding="utf-8"), re.DOTALL)
    for path in sorted((ROOT / "tests").rglob("test_*.py")):
        texts += re.findall(r'"""(\n?#include .*?)"""', path.read_text(encoding="utf-8"), re.DOTALL)
    return tuple(dict.fromkeys(text for text in texts if len(text) < LARGEST))


def source(rng: random.Random) -> str:
    """A kernel's source: a real one damaged or spliced with another, made of parts, or a long repetition."""
    kind = rng.random()
    if kind < 0.65:
        return damaged(rng, rng.choice(real_sources()), CPP)
    if kind < 0.8:
        one, other = rng.choice(real_sources()), rng.choice(real_sources())
        cut = rng.randrange(len(other))
        text = f"{one[: rng.randrange(len(one))]}{other[cut : cut + rng.choice((50, 500, 5000))]}"
        return damaged(rng, text, CPP)
    if kind < 0.85:
        text = rng.choice(real_sources())
        ending = rng.choice(("\r\n", "\r", "\\\n", " \\\n", "\n\0", "\x0c\n", "\u2028"))
        return text.replace("\n", ending)[:LARGEST]
    if kind < 0.98:
        return "".join(rng.choice(CPP) + rng.choice(("", " ", "\n")) for _ in range(rng.randrange(60)))
    return long_text(rng, CPP)


def wanted_functions(rng: random.Random, text: str) -> Any:
    """The argument ``functions`` for a source: what its annotations say, some names, or specs for them."""
    kind = rng.randrange(3)
    if kind == 0:
        return None
    words = re.findall(r"\b[A-Za-z_]\w{0,40}(?=\()", text[:20_000]) or ["f"]
    names = list(dict.fromkeys([rng.choice(words) for _ in range(rng.choice((1, 1, 2)))]))
    return names if kind == 1 else {name: arg_spec(rng) for name in names}


# Documents


HOSTILE: tuple[Any, ...] = (
    *(None, True, False, 0, -1, 1, 2**31, 2**63, 2**64, -(2**63) - 1, 10**300, 1.5, float("nan"), float("inf"), 1e308),
    *("", "\0", "a", "/", "//", "..", "\ud800", "x" * 5000, "9" * 5000),
    *([], {}, [[]], [None], {"": None}, [1, "a"], {"a": {}}),
)
_JSON = ("{", "}", "[", "]", '"', ":", ",", "null", "1e999", "NaN", "-", "\\u0000", "\\ud800")


def damaged_json(rng: random.Random, text: str) -> str:
    """JSON in which some values are others, or that is damaged as a text."""
    kind = rng.random()
    if kind < 0.3:
        return damaged(rng, text, _JSON)
    if kind < 0.32:
        opening = rng.choice(("[", '{"a":', '{"schema":', "[[", '[{"a":'))
        return opening * rng.choice((10, 1000, 30_000))
    document = json.loads(text)
    for _ in range(rng.choice((1, 1, 1, 2, 4))):
        document = _replaced(rng, document)
    return json.dumps(document)


def _replaced(rng: random.Random, value: Any) -> Any:
    """A value with one part replaced, dropped, doubled or nested."""
    if isinstance(value, dict) and value and rng.random() < 0.9:
        key = rng.choice(list(value))
        if rng.random() < 0.1:
            return {name: each for name, each in value.items() if name != key}
        if rng.random() < 0.1:
            return {**value, rng.choice(("", "x", "__class__", key + "s")): value[key]}
        return {**value, key: _replaced(rng, value[key])}
    if isinstance(value, list) and value and rng.random() < 0.9:
        at = rng.randrange(len(value))
        if rng.random() < 0.2:
            return value[:at] + value[at + 1 :] if rng.random() < 0.5 else [*value, value[at]]
        return [*value[:at], _replaced(rng, value[at]), *value[at + 1 :]]
    if isinstance(value, str) and value and rng.random() < 0.4:
        return damaged(rng, value, SIGNS)
    if isinstance(value, int) and rng.random() < 0.3:
        return value + rng.choice((-1, 1, 2**32, -(2**40)))
    return rng.choice((*HOSTILE, [value], {"a": value}))


def flipped(rng: random.Random, data: bytes) -> bytes:
    """Bytes with some bits flipped, or cut, or with a piece elsewhere."""
    if not data or rng.random() < 0.1:
        return rng.randbytes(rng.randrange(200))
    changed = bytearray(data)
    for _ in range(rng.choice((1, 1, 2, 8))):
        if not changed:
            break
        at, kind = rng.randrange(len(changed)), rng.randrange(6)
        if kind < 3:
            changed[at] ^= 1 << rng.randrange(8)
        elif kind == 3:
            changed[at] = rng.choice((0, 1, 0x7F, 0x80, 0xFF))
        elif kind == 4:
            del changed[at : at + rng.choice((1, 4, 100))]
        else:
            low = rng.randrange(len(changed))
            changed[at:at] = changed[low : low + rng.choice((1, 8, 64))]
    return bytes(changed)
