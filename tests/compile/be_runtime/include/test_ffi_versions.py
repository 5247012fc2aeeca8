"""Handlers under any version of XLA's FFI, which tables of a pretended XLA stand for, and with extensions in a call."""

from __future__ import annotations

import ctypes
import subprocess
from collections.abc import Sequence
from ctypes import POINTER, Structure, byref, c_float, c_int, c_size_t, c_uint32, c_uint64, c_void_p, cast
from itertools import pairwise
from pathlib import Path
from typing import Any

import pytest

import be_runtime
from be_runtime.jax.port import ffi_include_dir
from be_runtime.load.native_library import native_library
from be_runtime.load.process import PROCESS
from be_runtime.own_files import FFI_CLAIM, NATIVE_DIR
from tests.support import launch_frame
from tests.support.requirements import OPTIONAL
from tests.support.runtime import real_compiler

SOURCE = r"""
#include "brainevent/common.h"
#include "brainevent/state.h"

// @BE one
void one(BE::Tensor y) { y.data_ptr<float>()[0] = 1; }

// @BE general arg... ret
void general(const BE::Tensors xs, BE::Tensor y) { y.data_ptr<float>()[0] = 2 + xs.size(); }

struct Kept { int number = 3; };
// @BE stateful
void stateful(BE::Tensor y, const BE::State<Kept>& kept) { y.data_ptr<float>()[0] = kept->number; }
"""
METADATA, UNKNOWN, TYPE, FLOAT = 1, 4711, 77, 11
CREATE_ERROR, TYPE_REGISTER, STATE_SET, STATE_GET = 6, 11, 13, 14
"""Words of the table of XLA's functions."""
FUNCTION = ctypes.CFUNCTYPE(c_void_p, POINTER(c_uint64))


class Extension(Structure):
    """``XLA_FFI_InternalExtension``, and what follows it in ``XLA_FFI_Metadata_Extension``.

    An unknown one has such an address too, which nobody may write to.
    """

    _fields_ = (("struct_size", c_size_t), ("type", c_int), ("next", c_void_p), ("metadata", c_void_p))


class Metadata(Structure):
    """``XLA_FFI_Metadata``."""

    _fields_ = (
        ("struct_size", c_size_t), ("version_size", c_size_t), ("version_extension", c_void_p),
        ("major", c_int), ("minor", c_int), ("traits", c_uint32), ("state_type", c_uint64),
    )  # fmt: skip


COPIES: list[Xla] = []
"""All of them, since a handler knows each by its address."""


SPARE = Metadata()


def unknown() -> Extension:
    """An extension that is none of those that handlers know."""
    return Extension(type=UNKNOWN, metadata=ctypes.addressof(SPARE))


class Xla:
    """A copy of XLA that has some version, as far as handlers ask it; it notes the last structure of each kind."""

    def __init__(self, minor: int) -> None:
        self.minor = minor
        self.seen: dict[int, list[int]] = {}
        self.deleter = 0
        self.table = (c_uint64 * 40)()
        self.table[4] = minor << 32
        self._kept = {
            word: FUNCTION(lambda args, word=word: self._called(word, args))
            for word in (CREATE_ERROR, TYPE_REGISTER, STATE_SET, STATE_GET)
        }
        COPIES.append(self)
        for word, function in self._kept.items():
            self.table[word] = cast(function, c_void_p).value or 0

    @property
    def state_word(self) -> int:
        """Where the structures of a state have it."""
        return 5 if self.minor >= 3 else 4

    def _called(self, word: int, args: Any) -> int:
        if word == CREATE_ERROR:
            raise AssertionError(ctypes.string_at(args[2]))  # shown, but does not reach the test
        if word == TYPE_REGISTER:
            cast(args[4], POINTER(c_uint64))[0] = TYPE
            self.deleter = int(cast(args[5], POINTER(c_uint64))[2])
        if word == STATE_GET:
            args[self.state_word] = self.seen[STATE_SET][self.state_word]
        self.seen[word] = [args[i] for i in range(6)]
        return 0

    def call(self, handler: Any, extensions: Sequence[Extension] = (), *, results: int = 1) -> float:
        """Call a handler; what it wrote to the result."""
        value = c_float()
        buffer = launch_frame.Buffer(dtype=FLOAT, data=ctypes.addressof(value))
        items = (c_void_p * 1)(ctypes.addressof(buffer))
        for one, following in pairwise(extensions):
            one.next = ctypes.addressof(following)
        frame = launch_frame.Frame(
            api=cast(self.table, POINTER(launch_frame.Api)),
            extension=ctypes.addressof(extensions[0]) if extensions else None,
            rets=launch_frame.Buffers(size=results, items=items),
        )
        handler.restype = c_void_p
        assert handler(byref(frame)) is None
        return value.value

    def ask(self, handler: Any) -> Metadata:
        """Ask a handler what it is, behind another extension."""
        metadata = Metadata()
        question = Extension(type=METADATA, metadata=ctypes.addressof(metadata))
        self.call(handler, [unknown(), question], results=0)
        return metadata


@pytest.fixture(scope="module")
def library() -> ctypes.CDLL:
    return ctypes.CDLL(str(be_runtime.load_cpp_inline("ffi_versions", SOURCE).path))


@pytest.fixture(scope="module")
def launcher() -> ctypes.CDLL:
    return native_library("launcher", PROCESS.session(), ["-ldl"])


def test_a_call_may_have_extensions(library: ctypes.CDLL):
    for handler, expected in ((library.be_ffi_ffi_versions_one, 1), (library.be_ffi_ffi_versions_general, 2)):
        for count in (0, 1, 3):
            assert Xla(5).call(handler, [unknown() for _ in range(count)]) == expected


OTHERS = r"""
#include "ffi_versions.h"
#include "xla/ffi/api/collectives_c_api.h"
#include "xla/ffi/api/record_c_api.h"

template <class Theirs>
constexpr bool kIsOurs =
    sizeof(Theirs::extension_base) == sizeof(be_xla::Extension) &&
    std::is_same_v<decltype(Theirs::extension_base)*, decltype(XLA_FFI_CallFrame::extension_start)>;
static_assert(kIsOurs<XLA_FFI_Metadata_Extension>);
static_assert(!kIsOurs<XLA_FFI_Record_Extension> && !kIsOurs<XLA_FFI_Collectives_Extension>);
static_assert(offsetof(XLA_FFI_Extension, id) == offsetof(be_xla::Extension, type), "both chains begin alike");
static_assert(XLA_FFI_Extension_Record != XLA_FFI_Extension_Metadata);
static_assert(XLA_FFI_Extension_Collectives != XLA_FFI_Extension_Metadata);
static_assert(XLA_FFI_ExecutionStage_EXECUTE < XLA_FFI_ExecutionStage_RECORD);
"""


def test_records_and_collectives_are_no_extensions_of_a_frame(tmp_path: Path):
    xla = ffi_include_dir()
    if not (xla / "xla/ffi/api/record_c_api.h").is_file():
        pytest.skip(f"{OPTIONAL}the headers of JAX 0.11.2 or newer")
    (tmp_path / "others.cc").write_text(OTHERS)
    options = ("-std=c++17", "-fsyntax-only", "-Wall", "-Wextra", "-Werror", "-I", NATIVE_DIR, "-isystem", xla)
    done = subprocess.run((real_compiler(), *options, tmp_path / "others.cc"), capture_output=True, check=False)
    assert done.returncode == 0, done.stderr.decode()


def test_each_handler_claims_what_python_says(library: ctypes.CDLL, launcher: ctypes.CDLL):
    names = ("ffi_ffi_versions_one", "graph_ffi_versions_general", "instantiate_ffi_versions_stateful")
    handlers = [getattr(library, f"be_{name}") for name in names]
    for handler in (*handlers, launcher.be_launch_instantiate, launcher.be_launch_execute):
        answer = Xla(5).ask(handler)
        assert f"{answer.major}.{answer.minor}" == FFI_CLAIM


@pytest.mark.parametrize("minor", [1, 2, 3, 4, 5])
def test_each_version_has_its_own_structures_for_a_state(library: ctypes.CDLL, minor: int):
    xla = Xla(minor)
    instantiate = library.be_instantiate_ffi_versions_stateful
    assert xla.ask(instantiate).state_type == (TYPE if minor >= 2 else 0)
    xla.call(instantiate, results=0)
    assert xla.call(library.be_ffi_ffi_versions_stateful) == 3.0
    if minor == 1:
        assert xla.seen[STATE_SET][5] == xla.deleter
    for word in (STATE_SET, STATE_GET):
        assert cast(xla.seen[word][xla.state_word - 1], POINTER(c_uint64))[0] == TYPE
        assert xla.seen[word][0] >= 48
        if minor >= 3:
            assert xla.seen[word][3] & 0xFFFFFFFF == 0, "the stage, which is instantiate"
    ctypes.CFUNCTYPE(None, c_void_p)(xla.deleter)(xla.seen[STATE_SET][xla.state_word])
