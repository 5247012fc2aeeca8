"""FFI targets: once each, all of a module or none, and by hand."""

from __future__ import annotations

from pathlib import Path

import jax
import numpy as np
import pytest

import be_runtime
from be_runtime import ArgumentError, RegistrationError
from tests.support.runtime import call, environment, run_python

VALUE = jax.ShapeDtypeStruct((), np.int32)


def source(**functions: int) -> str:
    """Entry points that write a number each."""
    body = "// @BE {0}\nvoid {0}(BE::Tensor out) {{ out.data_ptr<int32_t>()[0] = {1}; }}\n"
    return '#include "brainevent/common.h"\n' + "".join(body.format(*pair) for pair in functions.items())


def value(target: str) -> int:
    return int(call(target, VALUE))


def targets(prefix: str) -> list[str]:
    return [name for name in be_runtime.list_registered_targets() if name.startswith(f"{prefix}.")]


def test_the_targets_of_a_module():
    module = be_runtime.load_cpp_inline("reg_two", source(b=1, a=2))
    assert module.function_names == ["b", "a"], "in the order of the source"
    assert targets("reg_two") == ["reg_two.a", "reg_two.b"], "sorted"
    assert list(be_runtime.list_registered_targets()) == sorted(set(be_runtime.list_registered_targets()))


def test_the_targets_of_a_platform():
    be_runtime.load_cpp_inline("reg_platforms", source(f=1))
    assert "reg_platforms.f" in be_runtime.list_registered_targets("cpu")
    assert not {"reg_platforms.f"} & set(be_runtime.list_registered_targets("gpu"))
    with pytest.raises(be_runtime.ArgumentError, match="platform must be 'cpu' or 'CUDA', not 'tpu'"):
        be_runtime.list_registered_targets("tpu")


def test_the_same_content_again_does_nothing():
    first = be_runtime.load_cpp_inline("reg_same", source(f=1))
    for options in ({}, {"force_rebuild": True}, {"verbose": True}):
        again = be_runtime.load_cpp_inline("reg_same", source(f=1), **options)  # type: ignore[arg-type]
        assert again.content_hash == first.content_hash
    assert targets("reg_same") == ["reg_same.f"]
    assert value("reg_same.f") == 1


def test_other_content_under_a_live_name_is_an_error():
    be_runtime.load_cpp_inline("reg_changed", source(f=1))
    with pytest.raises(RegistrationError, match=r"reg_changed\.f") as caught:
        be_runtime.load_cpp_inline("reg_changed", source(f=2))
    assert any("another name" in hint and "target_prefix" in hint for hint in caught.value.hints)
    assert any("auto_register=False" in hint for hint in caught.value.hints)
    assert value("reg_changed.f") == 1, "the first stays"
    with pytest.raises(RegistrationError):
        be_runtime.load_cpp_inline("reg_changed", source(f=1), optimization_level=0)
    be_runtime.load_cpp_inline("reg_changed", source(f=2), target_prefix="reg_changed_2")
    assert value("reg_changed_2.f") == 2


def test_a_second_load_may_add_functions():
    """Those of the first load stay, also if the source is annotated; another arg_spec is other content."""
    text = source(f=1, g=2, h=3)
    be_runtime.load_cpp_inline("reg_more", text, ["f"])
    assert be_runtime.load_cpp_inline("reg_more", text, {"g": ["ret"]}).function_names == ["g"]
    assert targets("reg_more") == ["reg_more.f", "reg_more.g"]
    whole = be_runtime.load_cpp_inline("reg_more", text)
    assert targets("reg_more") == ["reg_more.f", "reg_more.g", "reg_more.h"]
    assert [value(f"reg_more.{name}") for name in "fgh"] == [1, 2, 3]
    assert whole.content_hash != be_runtime.load_cpp_inline("reg_more", text, ["f"]).content_hash
    be_runtime.load_cpp_inline("reg_spec", text, {"f": ["ret[]"]})
    with pytest.raises(RegistrationError, match=r"reg_spec\.f"):
        be_runtime.load_cpp_inline("reg_spec", text, ["f", "g"])
    assert targets("reg_spec") == ["reg_spec.f"]


def test_an_empty_list_of_functions_makes_a_module_without_any(tmp_path: Path):
    assert be_runtime.load_cpp_inline("reg_none", source(f=1), []).function_names == []
    for name in "ab":
        (tmp_path / f"{name}.cc").write_text(source(f=1))
    assert be_runtime.load_cpp_dir(tmp_path, {}, name="reg_none").function_names == []
    assert targets("reg_none") == []


def test_all_of_a_module_or_none():
    be_runtime.load_cpp_inline("reg_partly", source(second=1), target_prefix="reg_all")
    with pytest.raises(RegistrationError, match=r"reg_all\.second"):
        be_runtime.load_cpp_inline("reg_whole", source(first=2, second=3, third=4), target_prefix="reg_all")
    assert targets("reg_all") == ["reg_all.second"]
    with pytest.raises(jax.errors.JaxRuntimeError):
        call("reg_all.first", VALUE)


def test_a_prefix():
    module = be_runtime.load_cpp_inline("reg_prefixed", source(f=5), target_prefix="my.prefix-1")
    assert module.name == "reg_prefixed"
    assert targets("my.prefix-1") == ["my.prefix-1.f"]
    assert targets("reg_prefixed") == []
    assert value("my.prefix-1.f") == 5


def test_by_hand_with_jax():
    module = be_runtime.load_cpp_inline("reg_hand", source(f=6), auto_register=False)
    assert targets("reg_hand") == []
    jax.ffi.register_ffi_target("reg_by_hand", module.get_handler("f"), platform="cpu")
    assert value("reg_by_hand") == 6


def test_by_hand_with_us():
    module = be_runtime.load_cpp_inline("reg_ours", source(f=7, g=8), auto_register=False)
    be_runtime.register_ffi_target("reg_by_us", module.get_handler("f"))
    assert "reg_by_us" in be_runtime.list_registered_targets()
    assert value("reg_by_us") == 7
    with pytest.raises(RegistrationError, match="reg_by_us"):
        be_runtime.register_ffi_target("reg_by_us", module.get_handler("g"))
    assert value("reg_by_us") == 7


def test_by_hand_in_brainevent_s_order():
    """A function of a module; the platform is the module's."""
    module = be_runtime.load_cpp_inline("reg_order", source(f=7, g=8), auto_register=False)
    more = be_runtime.load_cpp_inline("reg_order", source(f=7, g=8), ["g"], auto_register=False)
    for each in (module, more, module):
        be_runtime.register_ffi_target("reg_in_order", each, "g")
    assert value("reg_in_order") == 8
    assert "reg_in_order" in be_runtime.list_registered_targets("cpu")
    with pytest.raises(RegistrationError, match="reg_in_order"):
        be_runtime.register_ffi_target("reg_in_order", module, "f", platform="cpu")
    with pytest.raises(KeyError, match="reg_order"):
        be_runtime.register_ffi_target("reg_out_of_order", module, "h")


def test_by_hand_with_content():
    module = be_runtime.load_cpp_inline("reg_content", source(f=9), auto_register=False)
    for _ in range(2):
        be_runtime.register_ffi_target("reg_with_content", module.get_handler("f"), content=module.content_hash)
    with pytest.raises(RegistrationError):
        be_runtime.register_ffi_target("reg_with_content", module.get_handler("f"), content="other")
    assert value("reg_with_content") == 9


def test_one_name_may_serve_two_platforms():
    module = be_runtime.load_cpp_inline("reg_platforms", source(f=10), auto_register=False)
    be_runtime.register_ffi_target("reg_platform", module.get_handler("f"), "cpu")
    be_runtime.register_ffi_target("reg_platform", module.get_handler("f"), "CUDA")
    assert be_runtime.list_registered_targets().count("reg_platform") == 1
    assert value("reg_platform") == 10


@pytest.mark.parametrize("name", ["", "a/b", "a b", 3, None])
def test_names_by_hand(name: object):
    module = be_runtime.load_cpp_inline("reg_names", source(f=1), auto_register=False)
    with pytest.raises(ArgumentError, match="name"):
        be_runtime.register_ffi_target(name, module.get_handler("f"))  # type: ignore[arg-type]


@pytest.mark.parametrize("platform", ["tpu", "", 3])
def test_platforms_by_hand(platform: object):
    module = be_runtime.load_cpp_inline("reg_names", source(f=1), auto_register=False)
    with pytest.raises(ArgumentError, match="platform"):
        be_runtime.register_ffi_target("reg_bad", module.get_handler("f"), platform)  # type: ignore[arg-type]


def test_what_is_no_handler():
    with pytest.raises((ArgumentError, RegistrationError), match="reg_no_handler"):
        be_runtime.register_ffi_target("reg_no_handler", 3)
    assert "reg_no_handler" not in be_runtime.list_registered_targets()


def test_a_name_that_was_registered_without_us():
    """JAX refuses it; our error says so, and the target counts as none of ours."""
    module = be_runtime.load_cpp_inline("reg_foreign_maker", source(f=11), auto_register=False)
    jax.ffi.register_ffi_target("reg_foreign.g", module.get_handler("f"), platform="cpu")
    assert value("reg_foreign.g") == 11
    with pytest.raises(RegistrationError, match=r"reg_foreign\.g") as caught:
        be_runtime.load_cpp_inline("reg_foreign", source(g=12))
    assert caught.value.hints
    assert targets("reg_foreign") == []


def test_an_unknown_function():
    module = be_runtime.load_cpp_inline("reg_known", source(f=1, g=2), auto_register=False)
    with pytest.raises(KeyError, match=r"reg_known.*'h'.*f, g"):
        module.get_handler("h")


def test_what_a_module_says_of_itself():
    module = be_runtime.load_cpp_inline("reg_repr", source(f=1))
    assert repr(module) == f"CompiledModule(name='reg_repr', functions=['f'], path={str(module.path)!r})"
    assert module.path.is_file()
    assert module.path.suffix == ".so"
    assert len(module.content_hash) == 64
    other = be_runtime.load_cpp_inline("reg_repr_2", source(f=1))
    assert other.content_hash != module.content_hash


def test_a_module_need_not_be_kept():
    import gc

    be_runtime.load_cpp_inline("reg_dropped", source(f=13))
    gc.collect()
    assert value("reg_dropped.f") == 13


def test_the_content_hash_is_the_same_in_every_process(tmp_path: Path):
    """Found in the cache or built anew."""
    code = f"import be_runtime\nprint(be_runtime.load_cpp_inline('reg_hash', {source(f=1)!r}).content_hash)"
    places = {seed: environment(PYTHONHASHSEED=seed, BE_CACHE_DIR=str(tmp_path / seed)) for seed in ("1", "2")}
    hashes = [run_python(code, env=places[seed]).stdout.strip() for seed in ("1", "1", "2")]
    assert len(set(hashes)) == 1
