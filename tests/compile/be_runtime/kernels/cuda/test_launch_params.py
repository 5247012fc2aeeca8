"""The parameters and attributes of launches, as a driver gets them: a library of this test in place of CUDA's."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pytest

from be_runtime.kernels.geometry import (
    Geometry,
    LaunchParam,
    array_param,
    descriptor_param,
    encode_params,
    pointer_param,
    scalar_param,
    strided_param,
)
from be_runtime.load.native_library import native_library
from be_runtime.load.process import PROCESS
from tests.support import launch_frame

DRIVER = r"""
#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <cstring>

static void print_params(void** params) {
  char* sizes = getenv("SIZES");
  printf("params");
  for (int i = 0; *sizes; ++i) {
    const long size = strtol(sizes, &sizes, 10);
    unsigned long value = 0;
    memcpy(&value, params[i], size > 8 ? 8 : size);
    printf(" %lu", value);
  }
  puts("");
}

struct Config {
  unsigned grid[3], block[3], shared;
  void* stream;
  struct { int id; char padding[4]; unsigned value[16]; }* attributes;
  unsigned count;
};

extern "C" {
int cuInit(unsigned) { return 0; }
int cuDeviceGetCount(int* n) { *n = 1; return 0; }
int cuDeviceGetAttribute(int* value, int which, int) { *value = which == 75 ? 9 : which == 76 ? 0 : 1 << 17; return 0; }
int cuDevicePrimaryCtxGetState(int, unsigned*, int* active) { return *active = 0; }
int cuDevicePrimaryCtxRetain(void**, int) { return 0; }
int cuDevicePrimaryCtxRelease_v2(int) { return 0; }
int cuCtxGetDevice(int* device) { return *device = 0; }
int cuCtxPushCurrent_v2(void*) { return 0; }
int cuCtxPopCurrent_v2(void**) { return 0; }
int cuCtxSetCurrent(void*) { return 0; }
int cuCtxSynchronize() { return 0; }
int cuModuleLoadDataEx(void**, const void*, unsigned, const int*, void**) { return 0; }
int cuModuleGetFunction(void**, void*, const char*) { return 0; }
int cuFuncGetAttribute(int* value, int, void*) { *value = 1024; return 0; }
int cuFuncSetAttribute(void*, int, int) { return 0; }
int cuThreadExchangeStreamCaptureMode(int*) { return 0; }
int cuGetErrorName(int code, const char** name) { *name = code == 801 ? "NOT_SUPPORTED" : "INVALID"; return 0; }
int cuGetErrorString(int, const char** text) { *text = "no"; return 0; }
int cuMemAlloc_v2(uint64_t* pointer, size_t) { static uint64_t next = 0; *pointer = next += 4096; return 0; }
int cuMemcpyHtoD_v2(uint64_t, const void*, size_t) { return 0; }

int cuLaunchKernel(void*, unsigned x, unsigned y, unsigned z, unsigned bx, unsigned by, unsigned bz, unsigned shared,
                   void*, void** params, void**) {
  printf("launch %u %u %u block %u %u %u shared %u\n", x, y, z, bx, by, bz, shared);
  print_params(params);
  return 0;
}

int cuLaunchKernelEx(const Config* config, void*, void** params, void**) {
  printf("launch %u with", config->grid[0]);
  const auto* const attributes = config->attributes;
  for (unsigned i = 0; i < config->count; ++i) printf(" %d=%u", attributes[i].id, attributes[i].value[0]);
  puts("");
  print_params(params);
  return 0;
}
#ifdef WITH_TMA
int cuTensorMapEncodeTiled(uint64_t* map, int type, unsigned rank, const void* data, const uint64_t* extents,
                           const uint64_t* strides, const unsigned* box, const unsigned* steps, int interleave,
                           int swizzle, int promotion, int fill) {
  if (extents[0] == 13) return 1;
  static uint64_t made = 0;
  *map = 100 + ++made;
  const bool is_aligned = (uint64_t)map % 64 == 0;
  printf("map type %d rank %u data %lu aligned %d swizzle %d:", type, rank, (uint64_t)data, is_aligned, swizzle);
  for (unsigned i = 0; i < rank; ++i) printf(" %lu/%u/%u", extents[i], box[i], steps[i]);
  for (unsigned i = 0; i + 1 < rank; ++i) printf(" stride %lu", strides[i]);
  printf(" and %d %d %d\n", interleave, promotion, fill);
  memset(map + 1, 0, 120);
  return 0;
}
#endif
}
"""


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder with the driver, and with an older one."""
    made = tmp_path_factory.mktemp("driver")
    (made / "driver.cc").write_text(DRIVER)
    (made / "old").mkdir()
    for options in (["-DWITH_TMA", "-o", "libcuda.so.1"], ["-o", "old/libcuda.so.1"]):
        subprocess.run(["g++", "-shared", "-fPIC", "driver.cc", *options], cwd=made, check=True)
    return made


def launched(
    folder: Path,
    params: Sequence[LaunchParam],
    sizes: str,
    shapes: Sequence[Sequence[int]],
    geometry: Geometry = Geometry((1, 1, 1), (1, 1, 1)),  # noqa: B008 - a tuple
) -> list[str]:
    """What a driver gets for a launch with arrays of some shapes, the last of which is the result."""
    (folder / "code").write_bytes(b"code")
    arrays = [{"bytes": 1, "shape": list(shape)} for shape in shapes]
    launch, numbers = list(geometry.encode()), list(encode_params(params))
    attributes = {"kernel": "0" * 32, "launch": launch, "name": "f", "params": numbers}
    image = {"arch": 90, "is_ptx": 0, "form": 0, "entry": "f", "data": str(folder / "code")}
    job: dict[str, Any] = {"images": [image], "attributes": attributes, "inputs": arrays[:-1], "outs": arrays[-1:]}
    (folder / "job.json").write_text(json.dumps([job]))
    library = native_library("launcher", PROCESS.session(), ["-ldl"])
    argv = [sys.executable, "-S", str(launch_frame.__file__), library._name, str(folder / "job.json")]  # noqa: SLF001
    environ = {**os.environ, "LD_LIBRARY_PATH": str(folder), "SIZES": sizes}
    done = subprocess.run(argv, env=environ, capture_output=True, text=True, check=False)
    assert not done.stderr
    return done.stdout.splitlines()


def test_pointers_scalars_and_numbas_arrays(folder: Path):
    params = [pointer_param(1, 1, 32), scalar_param(b"\7"), array_param(0, 2, 64)]
    said = launched(folder, params, "8 1 8 8 8 8 8 8 8 8 8", [(3, 5), (4,)])
    assert said == ["launch 1 1 1 block 1 1 1 shared 0", "params 8192 7 0 0 15 8 4096 3 5 40 8"]


def test_cutiles_arrays_have_strides_in_elements(folder: Path):
    params = [strided_param(0, 3, 16), strided_param(1, 0, 16)]
    assert launched(folder, params, "8 4 4 4 4 4 4 8", [(2, 3, 5), ()])[1] == "params 4096 2 3 5 15 5 1 8192"


def test_a_batch_of_cutiles_arrays_is_a_launch_for_each_slice(folder: Path):
    said = launched(folder, [strided_param(0, 1, 32), strided_param(1, 1, 32)], "8 8 8 8 8 8", [(2, 4), (2, 4)])
    assert said[1::2] == ["params 4096 4 1 8192 4 1", "params 4112 4 1 8208 4 1"]


def test_triton_descriptors_are_made_for_each_launch(folder: Path):
    params = [scalar_param(b"\1"), descriptor_param(0, (64, 32), 16, 2, 6), descriptor_param(1, (256,), 32, 0, 7)]
    said = launched(folder, params, "8 128 4 4 8 8 128 4 8", [(2, 128, 48), (2, 24)])
    maps = [
        f"map type 6 rank 2 data {data} aligned 1 swizzle 2: 48/32/1 128/64/1 stride 96 and 0 2 0"
        for data in (4096, 4096 + 2 * 128 * 48)
    ]
    others = [f"map type 7 rank 1 data {data} aligned 1 swizzle 0: 24/256/1 and 0 2 0" for data in (8192, 8192 + 96)]
    numbers = ["params 1 101 128 48 48 1 102 24 1", "params 1 103 128 48 48 1 104 24 1"]
    launch = "launch 1 1 1 block 1 1 1 shared 0"
    assert said == [maps[0], others[0], launch, numbers[0], maps[1], others[1], launch, numbers[1]]


def test_a_descriptor_that_can_not_be_made_is_an_error(folder: Path):
    params = [descriptor_param(0, (8,), 32, 0, 7), pointer_param(1, 1, 32)]
    said = launched(folder, params, "", [(13,), (13,)])
    assert said == ["f: the driver can't make a TMA descriptor of an array: INVALID (no)"]
    said = launched(folder / "old", params, "", [(16,), (16,)])
    assert said == ["f: the driver can't make a TMA descriptor of an array: NOT_SUPPORTED (no)"]
    six = [(descriptor_param(0, (1,), 32, 0, 7)[0], 0, 6, 32), pointer_param(1, 1, 32)]
    assert "the attributes do not describe a launch" in launched(folder, six, "", [(1,) * 6, (1,)])[0]


@pytest.mark.parametrize(
    ("options", "said"),
    [
        ({"is_cooperative": True}, "2=1"),
        ({"is_programmatic": True}, "6=1"),
        ({"is_cooperative": True, "is_programmatic": True, "cluster": (2, 1, 1)}, "4=2 2=1 6=1"),
    ],
)
def test_attributes_of_launches(folder: Path, options: dict[str, Any], said: str):
    geometry = Geometry((4, 1, 1), (32, 1, 1), **options)
    assert launched(folder, [pointer_param(0, 1, 32)], "8", [(3,)], geometry)[0] == f"launch 4 with {said}"
