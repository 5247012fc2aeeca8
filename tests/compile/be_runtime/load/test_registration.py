"""FFI targets: once each, all of a module or none, and by hand."""

from __future__ import annotations

import gc
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import jax
import pytest

import be_runtime
from be_runtime import ArgumentError, CompiledModule, RegistrationError
from tests.compile.be_runtime.load.sources import source, value, write


def targets(prefix: str) -> list[str]:
    return [name for name in be_runtime.list_registered_targets() if name.startswith(f"{prefix}.")]


def test_the_targets_of_a_module():
    """A module need not be kept for them."""
    module = be_runtime.load_cpp_inline("reg_two", source(b=1, a=2))
    assert repr(module) == f"CompiledModule(name='reg_two', functions=['b', 'a'], path={str(module.path)!r})"
    assert module.function_names == ["b", "a"], "in the order of the source"
    assert (module.path.is_file(), module.path.suffix, len(module.content_hash)) == (True, ".so", 64)
    del module
    gc.collect()
    assert value("reg_two.b") == 1
    assert targets("reg_two") == ["reg_two.a", "reg_two.b"], "sorted"
    assert list(be_runtime.list_registered_targets()) == sorted(set(be_runtime.list_registered_targets()))
    assert "reg_two.a" in be_runtime.list_registered_targets("cpu")
    assert "reg_two.a" not in be_runtime.list_registered_targets("gpu")
    with pytest.raises(ArgumentError, match="platform must be 'cpu' or 'CUDA', not 'tpu'"):
        be_runtime.list_registered_targets("tpu")


def test_the_same_content_again_does_nothing_and_other_content_is_an_error():
    first = be_runtime.load_cpp_inline("reg_changed", source(f=1))
    for options in ({}, {"force_rebuild": True}, {"verbose": True}, {"replace": True}):
        again = be_runtime.load_cpp_inline("reg_changed", source(f=1), **options)  # type: ignore[arg-type]
        assert again.content_hash == first.content_hash
    assert targets("reg_changed") == ["reg_changed.f"]
    with pytest.raises(RegistrationError, match=r"reg_changed\.f") as caught:
        be_runtime.load_cpp_inline("reg_changed", source(f=2))
    assert any("another name" in hint and "target_prefix" in hint for hint in caught.value.hints)
    assert any("auto_register=False" in hint for hint in caught.value.hints)
    with pytest.raises(be_runtime.KernelRegistrationError, match=r"reg_changed\.f") as caught:
        be_runtime.load_cpp_inline("reg_changed", source(f=2), replace=True)
    assert "replace=True does not change this" in caught.value.hints
    assert value("reg_changed.f") == 1, "the first stays"
    with pytest.raises(RegistrationError):
        be_runtime.load_cpp_inline("reg_changed", source(f=1), optimization_level=0)
    other = be_runtime.load_cpp_inline("reg_changed", source(f=2), target_prefix="my.prefix-1")
    assert other.name == "reg_changed"
    assert value("my.prefix-1.f") == 2


def test_a_second_load_may_add_functions(tmp_path: Path):
    """Those of the first load stay, also if the source is annotated; another arg_spec is other content."""
    text = source(f=1, g=2, h=3)
    be_runtime.load_cpp_inline("reg_more", text, ["f"])
    assert be_runtime.load_cpp_inline("reg_more", text, {"g": ["ret"]}).function_names == ["g"]
    assert targets("reg_more") == ["reg_more.f", "reg_more.g"]
    whole = be_runtime.load_cpp_inline("reg_more", text)
    assert [value(f"reg_more.{name}") for name in "fgh"] == [1, 2, 3]
    assert whole.content_hash != be_runtime.load_cpp_inline("reg_more", text, ["f"]).content_hash
    be_runtime.load_cpp_inline("reg_spec", text, {"f": ["ret[]"]})
    with pytest.raises(RegistrationError, match=r"reg_spec\.f"):
        be_runtime.load_cpp_inline("reg_spec", text, ["f", "g"])
    assert targets("reg_spec") == ["reg_spec.f"]
    assert be_runtime.load_cpp_inline("reg_none", text, []).function_names == []
    write(tmp_path, a=text, b=text)
    assert be_runtime.load_cpp_dir(tmp_path, {}, name="reg_none").function_names == []
    assert targets("reg_none") == []


def test_many_threads_load_and_call_the_same_module():
    def work(_: int) -> tuple[str, int]:
        module = be_runtime.load_cpp_inline("reg_threads", source(f=6))
        return str(module.path), value("reg_threads.f")

    with ThreadPoolExecutor(6) as pool:
        results = list(pool.map(work, range(12)))
    assert results == [(results[0][0], 6)] * 12


@pytest.fixture(scope="module")
def module() -> CompiledModule:
    return be_runtime.load_cpp_inline("reg_hand", source(f=7, g=8), auto_register=False)


def test_by_hand(module: CompiledModule):
    assert targets("reg_hand") == []
    jax.ffi.register_ffi_target("reg_by_hand", module.get_handler("f"), platform="cpu")
    assert value("reg_by_hand") == 7
    for _ in range(2):
        be_runtime.register_ffi_target("reg_by_us", module.get_handler("f"), content=module.content_hash)
    for handler, content in ((module.get_handler("g"), None), (module.get_handler("f"), "other")):
        with pytest.raises(RegistrationError, match="reg_by_us"):
            be_runtime.register_ffi_target("reg_by_us", handler, content=content, replace=True)
    assert value("reg_by_us") == 7


def test_by_hand_in_brainevent_s_order(module: CompiledModule):
    """A function of a module; the platform is the module's."""
    more = be_runtime.load_cpp_inline("reg_hand", source(f=7, g=8), ["g"], auto_register=False)
    for each in (module, more, module):
        be_runtime.register_ffi_target("reg_in_order", each, "g")
    assert value("reg_in_order") == 8
    assert "reg_in_order" in be_runtime.list_registered_targets("cpu")
    with pytest.raises(RegistrationError, match="reg_in_order"):
        be_runtime.register_ffi_target("reg_in_order", module, "f", platform="cpu")
    with pytest.raises(KeyError, match=r"reg_hand.*'h'.*f, g"):
        be_runtime.register_ffi_target("reg_out_of_order", module, "h")


def test_bad_arguments_by_hand(module: CompiledModule):
    handler = module.get_handler("f")
    for said, given in (("name", ("a b", handler)), ("platform", ("reg_bad", handler, "tpu"))):
        with pytest.raises(ArgumentError, match=said):
            be_runtime.register_ffi_target(*given)
    with pytest.raises((ArgumentError, RegistrationError), match="reg_no_handler"):
        be_runtime.register_ffi_target("reg_no_handler", 3)
    assert "reg_no_handler" not in be_runtime.list_registered_targets()
    with pytest.raises(KeyError, match=r"reg_hand.*'h'.*f, g"):
        module.get_handler("h")


def test_a_name_that_was_registered_without_us(module: CompiledModule):
    """JAX refuses it; our error says so, and the target counts as none of ours."""
    jax.ffi.register_ffi_target("reg_foreign.g", module.get_handler("f"), platform="cpu")
    with pytest.raises(RegistrationError, match=r"reg_foreign\.g") as caught:
        be_runtime.load_cpp_inline("reg_foreign", source(g=12))
    assert caught.value.hints
    assert targets("reg_foreign") == []
