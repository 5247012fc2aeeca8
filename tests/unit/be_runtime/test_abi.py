"""What Python shares with C++: the ABI number, and the tables of element types."""

from __future__ import annotations

import hashlib
import json
import re
from typing import Any

import jax.numpy as jnp
import numpy as np
import pytest

from be_runtime.call.resolve import PRESENT
from be_runtime.compile.codegen_values import Binding
from be_runtime.dtypes import ATTR_TYPES, BY_NAME, DTYPES, DType
from be_runtime.errors import LoadError
from be_runtime.jax.port import ffi_include_dir
from be_runtime.kernels import geometry, launcher
from be_runtime.own_files import ABI, FFI_CLAIM, NATIVE_DIR, OLDEST, check_abi
from be_runtime.signature import SourceText
from be_runtime.signature.discovery import discover
from be_runtime.store.index import Handlers
from tests.support.element_types import ROWS
from tests.support.small_types import dtype_of

RECORDED = {1: "b2fd5a7b6ec4ff03"}
"""The hash of what each ABI number covers."""

STATEFUL = "// @BE f ret state\nvoid f(BE::Tensor y, const BE::State<int>& kept) {}"


def covered() -> dict[str, Any]:
    """What compiled modules and Python share."""
    (entry,) = discover([SourceText(name="f", text=STATEFUL)])
    binding = Binding(entry=entry, symbol="SYMBOL", export="f")
    handlers = (binding.handler(allow_cuda_graph=False), binding.handler(allow_cuda_graph=True), binding.instantiate)
    sizes = geometry.Geometry((1, 2, 3), (4, 5, 6), 7, (8, 9, 10), is_cooperative=True, batch_axis=2)
    params = (geometry.pointer_param(1, 2, 32), geometry.array_param(3, 4, 64), geometry.scalar_param(b"\1\2"))
    encoded = geometry.encode_params(params)
    return {
        "ffi": FFI_CLAIM,
        "functions": Handlers._fields,
        "handlers": handlers,
        "absent arrays": PRESENT,
        "attributes": {row.name: (row.attr_type.name, row.attr_parts) for row in ATTR_TYPES.values()},
        "launch": {"kernel": launcher.ID_DIGITS, "launch": sizes.encode(), "name": "", "params": encoded},
        "launcher": native_declarations("launcher.cc"),
        "host calls": native_declarations("host_call.cc"),
    }


def native_declarations(name: str) -> list[str]:
    """What a library of our own exports, and the structures that Python fills, in C++ without comments."""
    text = re.sub(r"//.*", "", (NATIVE_DIR / name).read_text(encoding="utf-8"))
    exports = re.findall(r"^BE_EXPORT\s([^{]*)\{", text, re.MULTILINE)
    structures = re.findall(r"^struct (?:be_launch_image|Parameter) \{[^}]*\}", text, re.MULTILINE)
    assert exports
    assert structures
    return [" ".join(each.split()) for each in (*exports, *structures)]


def test_what_the_number_stands_for_changes_with_it():
    headers = (NATIVE_DIR / "ffi_versions.h").read_text(encoding="utf-8")
    assert "kClaimMajor = {}, kClaimMinor = {};".format(*FFI_CLAIM.split(".")) in headers
    found = covered()
    digest = hashlib.sha256(json.dumps(found, sort_keys=True).encode()).hexdigest()[:16]
    assert RECORDED.get(ABI) == digest, (
        "what compiled modules and Python share has changed: raise ABI in be_runtime/own_files.py if modules that were "
        "compiled before no longer work, and record the new hash here; else you did not mean it, unless the change "
        f"is one that they do without. It is now {digest}:\n" + "\n".join(map(str, found.items()))
    )


def test_the_oldest_and_the_own_abi_are_loaded_and_for_others_it_is_said_which_side_to_update():
    check_abi(OLDEST, "spikes")
    check_abi(ABI, "spikes")
    with pytest.raises(LoadError) as caught:
        check_abi(ABI + 1, "spikes")
    assert caught.value.message == f"spikes was made for ABI {ABI + 1}, but this be_runtime has ABI {ABI}"
    assert caught.value.hints == ("update brainevent-toolchain here: pip install --upgrade brainevent-toolchain",)
    with pytest.raises(LoadError, match=f"ABI {OLDEST - 1}, .* and loads {OLDEST} on") as caught:
        check_abi(OLDEST - 1, "spikes")
    assert caught.value.hints == ("build spikes again with this brainevent-toolchain",)


HEADER = (ffi_include_dir() / "xla/ffi/api/c_api.h").read_text(encoding="utf-8")
XLAS = {name: int(value) for name, value in re.findall(r"\bXLA_FFI_DataType_(\w+) = (\d+)", HEADER)}


@pytest.mark.parametrize("row", DTYPES, ids=lambda row: row.name)
def test_a_row_says_the_same_on_both_sides_and_has_the_size_that_jax_gives_it(row: DType):
    theirs = ROWS[row.name]
    assert (theirs.bits, theirs.xla_code) == (row.bits, row.xla_code)
    assert theirs.cpp_type.removeprefix("::") == row.cpp_types[0]
    assert XLAS[theirs.xla_name] == row.xla_code
    if row.is_for_arrays_only:
        dtype_of(row.name)
    kind = jnp.finfo if row.kind in ("float", "complex") else jnp.iinfo
    bits = 8 if row.kind == "bool" else kind(row.name).bits * (2 if row.kind == "complex" else 1)
    assert (row.bits, row.size_bytes) == (bits, bits // 8)
    assert hasattr(np, "bool_" if row.kind == "bool" else row.name) == (row.module == "np"), "it has the scalars"


def test_no_two_rows_share_a_number_or_a_name_in_cpp():
    assert set(ROWS) == set(BY_NAME)
    assert len({row.be_code for row in ROWS.values()}) == len({row.xla_code for row in DTYPES}) == len(DTYPES)
    assert max(row.be_code for row in ROWS.values()) < 31, "DTypeSet in dtype.h has a bit for each"
    spelt = [name for row in DTYPES for name in row.cpp_types]
    assert len(set(spelt)) == len(spelt)


def test_an_attribute_is_of_fifteen_types_and_carried_by_what_xla_has_of_its_size():
    assert len(ATTR_TYPES) == 15
    assert {name.rstrip("0123456789") for name in ATTR_TYPES} == {"bool", "int", "uint", "float", "bfloat", "complex"}
    for row in ATTR_TYPES.values():
        carrier = row.attr_type
        assert carrier.size_bytes * max(row.attr_parts, 1) == row.size_bytes
        assert carrier.kind in {"float", "int", "uint", "bool"}
        assert not carrier.is_narrow
