"""Every kernel that the tests on a device run compiles, for an architecture that need not be here, and is loaded."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

import be_runtime
from tests.cuda.built import built, images
from tests.support import cuda, runtime
from tests.support.requirements import OPTIONAL, in_full

NAMES = ("kinds", "elementwise", "transforms", "graph", "half", "events", "cub_sums", "small_types", "memory")
MORE = ("failures", "resources", "arithmetic", "templates", "numbers")
STRICT = ("-Xcompiler", "-Wall,-Wextra,-Werror", "-Werror", "all-warnings")
LOAD_TINY = """
import json, sys
sys.path.insert(0, sys.argv[1])
import be_runtime
module = be_runtime.load_cuda_inline("tiny", sys.argv[2], extra_ldflags=["-ltiny"], auto_register=False)
print(json.dumps("/site-packages/nvidia/cu13/lib/libtiny.so.13" in open("/proc/self/maps").read()))
"""


@pytest.mark.parametrize("name", ["styles", *map(in_full, (*NAMES, *MORE))])
def test_a_kernel_compiles_and_is_loaded(name: str):
    module = built(name)
    assert images(module) == {("elf", 90), ("ptx", 90)}
    assert module.function_names
    assert all(module.get_handler(function) for function in module.function_names)


def test_the_generated_code_of_every_kind_has_no_warnings():
    assert built("kinds", *STRICT).function_names == ["combine", "copies"]


@pytest.mark.full
@pytest.mark.parametrize("name", ["training", "events", "styles", "out_of_bounds"])
def test_programs_for_the_sanitizer_compile(name: str):
    module = cuda.load_exercise(name)
    code = "import ctypes, sys; ctypes.CDLL(sys.argv[1]).exercise"
    assert subprocess.run([sys.executable, "-S", "-c", code, str(module.path)], check=False).returncode == 0


@pytest.mark.full
def test_a_folder_of_eight_files_that_share_names(tmp_path: Path):
    folder = tmp_path / "kernels"
    cuda.write_eight_files(folder)
    module = be_runtime.load_cuda_dir(folder, name="eight", auto_register=False)
    only = {f"only_{i}" for i in cuda.EIGHT_FILES}
    repeated = {f"part_{i}.apply" for i in range(5)} | {f"part_{i}.shift" for i in range(4, 8)}
    assert set(module.function_names) == only | repeated
    assert len([code for code in cuda.device_code(module.path) if code.kind == "elf"]) == len(cuda.EIGHT_FILES)


@pytest.mark.parametrize("flags", ["-rdc=true", *map(in_full, ("-rdc true", "-dlto", "-rdc=true -dlto"))])
def test_relocatable_device_code(flags: str):
    folder = cuda.KERNELS / "relocatable"
    try:
        module = be_runtime.load_cuda_dir(folder, extra_cuda_cflags=flags.split(), auto_register=False)
    except be_runtime.BuildError as error:
        if cuda.NO_LTO_LINKER in str(error):
            pytest.skip(OPTIONAL + "nvvm/lib64/libnvvm.so, for nvlink to optimize")
        raise
    assert module.function_names == ["apply"]
    assert "elf" in {kind for kind, _ in images(module)}


@pytest.mark.full
def test_a_library_from_wheels_is_found_by_its_name(tmp_path: Path):
    """A wheel has libcublas.so.13, say, and no libcublas.so for the linker to find."""
    wheel = tmp_path / "site-packages" / "nvidia" / "cu13"
    for folder in ("include", "lib"):
        (wheel / folder).mkdir(parents=True)
    (wheel / "include" / "tiny.h").write_text('extern "C" int tiny();\n')
    (tmp_path / "tiny.cc").write_text('extern "C" int tiny() { return 0; }\n')
    command = (runtime.real_compiler(), "-shared", "-fPIC", "-Wl,-soname,libtiny.so.13", str(tmp_path / "tiny.cc"))
    subprocess.run([*command, "-o", str(wheel / "lib" / "libtiny.so.13")], check=True)
    text = cuda.source("half") + "#include <tiny.h>\nint used = tiny();\n"
    assert cuda.run_json(LOAD_TINY, str(tmp_path / "site-packages"), text, LD_LIBRARY_PATH=None)
