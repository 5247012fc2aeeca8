"""Calls the native launcher as XLA would, from a Python without JAX: for tools under which JAX would take minutes.

``python -S launch_frame.py LAUNCHER JOB.json`` makes each launch of a job on the first GPU and exits with 1 if one
fails. A job is a list of launches: ``images`` (rows of `be_launch_image` with a file for the data), ``attributes`` of
the FFI call, ``inputs`` (files with the bytes, and shapes) and ``outs`` (bytes and shapes).

The structures are those of ``xla/ffi/api/c_api.h``, the same in its versions 0.3 to 0.5 as far as they are read.
"""

from __future__ import annotations

import ctypes
import json
import sys
from ctypes import POINTER, Structure, byref, c_char_p, c_int, c_int32, c_int64, c_size_t, c_uint64, c_void_p
from pathlib import Path
from typing import Any

_BUFFER, _ARRAY, _STRING, _S64, _EXECUTE = 1, 1, 4, 5, 3
TOKEN = 17
"""XLA's number of the element type."""


class Image(Structure):
    """``be_launch_image``."""

    _fields_ = (
        ("arch", c_int32), ("is_ptx", c_int32), ("is_exact", c_int32), ("form", c_int32),
        ("entry", c_char_p), ("data", c_char_p), ("size", c_int64),
    )  # fmt: skip


class Span(Structure):
    """``XLA_FFI_ByteSpan``."""

    _fields_ = (("ptr", c_char_p), ("len", c_size_t))


class Array(Structure):
    """``XLA_FFI_Array``."""

    _fields_ = (("dtype", c_int), ("size", c_size_t), ("data", c_void_p))


class Buffer(Structure):
    """``XLA_FFI_Buffer``."""

    _fields_ = (
        ("struct_size", c_size_t), ("extension", c_void_p),
        ("dtype", c_int), ("data", c_void_p), ("rank", c_int64), ("dims", POINTER(c_int64)),
    )  # fmt: skip


class Buffers(Structure):
    """``XLA_FFI_Args`` and ``XLA_FFI_Rets``."""

    _fields_ = (
        ("struct_size", c_size_t), ("extension", c_void_p),
        ("size", c_int64), ("types", POINTER(c_int)), ("items", POINTER(c_void_p)),
    )  # fmt: skip


class Attrs(Structure):
    """``XLA_FFI_Attrs``."""

    _fields_ = (
        ("struct_size", c_size_t), ("extension", c_void_p), ("size", c_int64),
        ("types", POINTER(c_int)), ("names", POINTER(POINTER(Span))), ("items", POINTER(c_void_p)),
    )  # fmt: skip


class ErrorArgs(Structure):
    """``XLA_FFI_Error_Create_Args``."""

    _fields_ = (("struct_size", c_size_t), ("extension", c_void_p), ("message", c_char_p), ("code", c_int))


class StreamArgs(Structure):
    """``XLA_FFI_Stream_Get_Args``."""

    _fields_ = (("struct_size", c_size_t), ("extension", c_void_p), ("ctx", c_void_p), ("stream", c_void_p))


CREATE_ERROR = ctypes.CFUNCTYPE(c_void_p, POINTER(ErrorArgs))
GET_STREAM = ctypes.CFUNCTYPE(c_void_p, POINTER(StreamArgs))


class Api(Structure):
    """The beginning of ``XLA_FFI_Api``."""

    _fields_ = (
        ("struct_size", c_size_t), ("extension", c_void_p), ("version", c_uint64 * 3), ("internal", c_void_p),
        ("create_error", CREATE_ERROR), ("unused", c_void_p * 3), ("get_stream", GET_STREAM),
    )  # fmt: skip


class Frame(Structure):
    """``XLA_FFI_CallFrame``."""

    _fields_ = (
        ("struct_size", c_size_t), ("extension", c_void_p), ("api", POINTER(Api)), ("ctx", c_void_p),
        ("stage", c_int), ("args", Buffers), ("rets", Buffers), ("attrs", Attrs), ("future", c_void_p),
    )  # fmt: skip


class Device:
    """The first GPU."""

    def __init__(self) -> None:
        self.cuda = ctypes.CDLL("libcuda.so.1")
        context = c_void_p()
        self.check(self.cuda.cuInit(0))
        self.check(self.cuda.cuDevicePrimaryCtxRetain(byref(context), 0))
        self.check(self.cuda.cuCtxSetCurrent(context))

    def check(self, result: int) -> None:
        """A CUresult that has to be success."""
        if result != 0:
            raise RuntimeError(f"CUDA error {result}")

    def allocate(self, content: bytes) -> c_void_p:
        """Memory of exactly this size, filled."""
        pointer = c_void_p()
        self.check(self.cuda.cuMemAlloc_v2(byref(pointer), c_size_t(len(content))))
        self.check(self.cuda.cuMemcpyHtoD_v2(pointer, content, c_size_t(len(content))))
        return pointer


def main() -> int:
    """Make every launch of the job."""
    launcher = ctypes.CDLL(sys.argv[1])
    launcher.be_launch_execute.restype = c_void_p
    device, messages = Device(), list[str]()
    api = make_api(messages)
    for job in json.loads(Path(sys.argv[2]).read_text(encoding="utf-8")):
        _define(launcher, job)
        kept, frame = _frame(device, api, job)
        launcher.be_launch_execute(byref(frame))
        device.check(device.cuda.cuCtxSynchronize())
        del kept
    sys.stdout.write("\n".join(messages))
    return bool(messages)


def make_api(messages: list[str]) -> Api:
    """What the launcher asks of XLA; the messages of errors are noted."""

    def note(args: Any) -> int:
        messages.append(args.contents.message.decode())
        return 1

    return Api(create_error=CREATE_ERROR(note), get_stream=GET_STREAM(lambda _: None))


def make_attrs(attributes: dict[str, Any], kept: list[Any]) -> Attrs:
    """The attributes of a call: texts, and lists of integers."""
    names, types, items = [], [], []
    for name, value in sorted(attributes.items()):
        span = Span(name.encode(), len(name))
        if isinstance(value, str):
            item: Any = Span(value.encode(), len(value))
        else:
            numbers = (c_int64 * len(value))(*value)
            kept.append(numbers)
            item = Array(_S64, len(value), ctypes.addressof(numbers))
        kept.extend((span, item))
        names.append(ctypes.pointer(span))
        types.append(_STRING if isinstance(value, str) else _ARRAY)
        items.append(ctypes.addressof(item))
    size = len(names)
    arrays = ((c_int * size)(*types), (POINTER(Span) * size)(*names), (c_void_p * size)(*items))
    kept.extend(arrays)
    return Attrs(size=size, types=arrays[0], names=arrays[1], items=arrays[2])


def _define(launcher: Any, job: dict[str, Any]) -> None:
    """Tell the launcher about a job's kernel."""
    images = []
    for row in job["images"]:
        data = Path(row["data"]).read_bytes()
        images.append(Image(row["arch"], row["is_ptx"], 0, row["form"], row["entry"].encode(), data, len(data)))
    kernel = job["attributes"]["kernel"].encode()
    launcher.be_launch_define(
        kernel, job["attributes"]["name"].encode(), (Image * len(images))(*images), c_int64(len(images))
    )


def _frame(device: Device, api: Api, job: dict[str, Any]) -> tuple[list[Any], Frame]:
    """A call's frame, and what has to live as long."""
    kept: list[Any] = []

    def buffers(rows: list[dict[str, Any]]) -> Buffers:
        made = []
        for row in rows:
            content = Path(row["file"]).read_bytes() if "file" in row else bytes(row["bytes"])
            dims = (c_int64 * max(len(row["shape"]), 1))(*row["shape"])
            buffer = Buffer(data=device.allocate(content), rank=len(row["shape"]), dims=dims)
            kept.extend((dims, buffer))
            made.append(ctypes.addressof(buffer))
        types, items = (c_int * len(made))(*[_BUFFER] * len(made)), (c_void_p * len(made))(*made)
        kept.extend((types, items))
        return Buffers(size=len(made), types=types, items=items)

    attrs = make_attrs(job["attributes"], kept)
    frame = Frame(
        api=ctypes.pointer(api), stage=_EXECUTE, args=buffers(job["inputs"]), rets=buffers(job["outs"]), attrs=attrs
    )
    return kept, frame


if __name__ == "__main__":
    sys.exit(main())
