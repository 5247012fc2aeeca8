"""Loading: targets are registered all or none, entries are used beside other processes, and a module has its names."""

from __future__ import annotations

import copy
import ctypes
import os
import time
import warnings
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any
from unittest.mock import Mock, call

import pytest

import be_runtime
from be_runtime import errors, settings
from be_runtime.call.function import KernelFunction
from be_runtime.load.module import OWN, CompiledModule, ModuleDescription, ModuleInfo, Rebuilder
from be_runtime.load.obtain import Attempts
from be_runtime.load.registry import Registry, Session, Target
from be_runtime.store import cache, index, keys
from be_toolchain.machine.local_system import LocalSystem


@pytest.fixture
def jax() -> Mock:
    """What takes registrations."""
    return Mock()


@pytest.fixture
def registry(jax: Mock) -> Registry:
    return Registry(jax)


def add(registry: Registry, content: str, *names: str, platform: str = "cpu", by_name: bool = False) -> None:
    makers: dict[str, Callable[[], object]] = {}
    for name in names:
        makers[name] = lambda name=name: f"{content} of {name}"  # type: ignore[misc]
    registry.add([Target(name, platform, content) for name in names], makers, by_name=by_name)


def test_targets_are_handed_over_once_and_their_handlers_not_made_again(registry: Registry, jax: Mock):
    for _ in range(2):
        add(registry, "one", "m.b", "m.a")
    registry.add([Target("m.a", "cpu", "one")], {})
    assert jax.call_args_list == [call("m.b", "one of m.b", "cpu"), call("m.a", "one of m.a", "cpu")]
    assert registry.names() == ("m.a", "m.b")


def test_other_content_registers_nothing_at_all(registry: Registry, jax: Mock):
    add(registry, "other", "m.b")
    with pytest.raises(errors.RegistrationError, match=r"'m\.b' is already registered for cpu") as caught:
        add(registry, "one", "m.a", "m.b", "m.c")
    assert (registry.names(), jax.call_count) == (("m.b",), 1)
    assert caught.value.hints


def test_what_can_t_be_made_or_jax_refuses_registers_nothing_at_all(registry: Registry, jax: Mock):
    targets = [Target(name, "cpu", "c") for name in ("m.a", "m.b")]
    with pytest.raises(ZeroDivisionError):
        registry.add(targets, {"m.a": lambda: "handler", "m.b": lambda: 1 / 0})
    assert not jax.called
    jax.side_effect = RuntimeError("Duplicate FFI handler registration")
    with pytest.raises(errors.RegistrationError, match=r"JAX refuses .*'m\.b'.*Duplicate"):
        add(registry, "one", "m.b")
    assert not registry.names()


def test_a_name_may_serve_two_platforms(registry: Registry, jax: Mock):
    add(registry, "one", "m.f")
    add(registry, "two", "m.f", platform="CUDA")
    assert registry.names() == ("m.f",)
    assert [each.args[2] for each in jax.call_args_list] == ["cpu", "CUDA"]


def test_threads_register_once(registry: Registry, jax: Mock):
    names = [f"m.f{number}" for number in range(20)]
    with ThreadPoolExecutor(8) as pool:
        for _ in range(50):
            pool.submit(add, registry, "one", *names)
    assert sorted(each.args[0] for each in jax.call_args_list) == sorted(names)


def test_while_a_watch_is_on_names_keep_their_first_content_and_other_targets_have_one(registry: Registry, jax: Mock):
    registry.keep_first = keep_first = Mock()
    add(registry, "one", "m.f", by_name=True)
    add(registry, "one", "be.0123")
    assert not keep_first.called
    add(registry, "two", "m.f", "m.g", by_name=True)
    keep_first.assert_called_once_with(["m.f"])
    assert jax.call_args_list == [call(name, f"{content} of {name}", "cpu") for name, content in REGISTERED.items()]
    assert {name: registry.get(name)[0].content for name in REGISTERED} == REGISTERED
    add(registry, "one", "m.f", by_name=True)
    assert keep_first.call_count == 1, "the first content again"
    with pytest.raises(errors.RegistrationError, match="already registered"):
        add(registry, "two", "be.0123")


REGISTERED = {"m.f": "one", "be.0123": "one", "m.g": "two"}


KEY = keys.make_key("module", ("name", "kernels"))


@pytest.fixture
def session(tmp_path: Path) -> Session:
    return Session(
        system=LocalSystem(),
        settings=settings.Settings.from_environ({}),
        cache=cache.Cache(tmp_path / "cache"),
        module_store=cache.Cache(tmp_path / "cache"),
        record_dir=tmp_path / "cache" / "toolchain",
        registry=Registry(lambda name, handler, platform: None),
    )


def build(staging: Path) -> cache.BuildOutput:
    (staging / "text").write_text("made")
    return cache.BuildOutput(outputs=("text",))


def use_built(session: Session, use: Callable[[cache.Entry], str], *, force: bool = False) -> str:
    return use_attempts(session, use, lambda _anew: session.module_store.get_or_build(KEY, build, force=force))


def use_attempts(session: Session, use: Callable[[cache.Entry], str], find: Callable[[bool], cache.Entry]) -> str:
    attempts = Attempts(session)
    while attempts.should_try():
        entry = find(attempts.must_rebuild)
        with attempts.using(entry):
            used = use(entry)
    return used


def read(entry: cache.Entry) -> str:
    return entry.output("text").read_text()


def test_an_entry_that_another_process_twice_removes_before_it_is_read_is_built_again(session: Session):
    built = []

    def read_too_late(entry: cache.Entry) -> str:
        built.append(entry.built)
        if len(built) <= 2:
            session.module_store.clear()
        return read(entry)

    assert use_built(session, read_too_late) == "made"
    assert built == [True, True, True]


@pytest.mark.parametrize("error", [errors.LoadError("no such symbol"), FileNotFoundError("of another's")])
def test_what_fails_while_its_entry_is_there_is_not_tried_again(session: Session, error: Exception):
    use = Mock(side_effect=error)
    with pytest.raises(type(error)):
        use_built(session, use)
    assert use.call_count == 1


@pytest.mark.parametrize("error", [KeyError("images.json"), errors.LoadError("file too short"), RecursionError()])
def test_what_came_from_elsewhere_and_can_not_be_used_is_built_here_once(
    session: Session, error: Exception, capsys: pytest.CaptureFixture[str]
):
    def use(entry: cache.Entry) -> str:
        if entry.manifest.made.source:
            raise error
        return read(entry)

    def find(anew: bool) -> cache.Entry:
        if anew:
            return session.module_store.get_or_build(KEY, build, force=True)
        return session.module_store.get_or_build(KEY, lambda folder: build(folder)._replace(source="a server"))

    assert [use_attempts(session, use, find) for _ in range(2)] == ["made", "made"]
    assert capsys.readouterr().err.count("the entry from a server can't be used, so it is built here") == 1


def test_an_entry_that_is_removed_again_and_again_is_the_caches_error(session: Session):
    def read_too_late(entry: cache.Entry) -> str:
        session.module_store.clear()
        return read(entry)

    with pytest.raises(errors.CacheError, match="was removed before it was loaded, 5 times"):
        use_built(session, read_too_late)


def test_a_build_keeps_the_cache_and_what_it_holds_of_the_toolchain_within_the_limits(session: Session):
    def large(staging: Path) -> cache.BuildOutput:
        (staging / "large").touch()
        os.truncate(staging / "large", 2 * 2**20)
        return cache.BuildOutput(outputs=("large",))

    both = (session.cache, session.toolchain_store)
    for store in both:
        old = store.get_or_build(keys.make_key("module", ("name", "old")), large)
        os.utime(old.path / "manifest.json", (time.time() - 600,) * 2)
        store.get_or_build(keys.make_key("module", ("name", "new")), build)
    limited = session._replace(settings=session.settings._replace(cache_max_size_mib=1))
    for _ in range(2):  # one finds out how large the cache is, the next removes what is too much
        use_built(limited, read, force=True)
    names = [sorted({info.name for info in store.entries()}) for store in both]
    assert names == [["kernels", "new"], ["new"]]


def test_a_cache_that_cant_be_pruned_fails_no_load(session: Session):
    session.module_store.get_or_build(KEY, build)
    (session.module_store.root / "kernels-v1" / "pruning.json").mkdir()
    assert use_built(session, read, force=True) == "made"


INTERNALS = ["carry", "current", "entry_point", "identity", "maker", "mode", "of", "platform", "_functions"]


def unused(*_: Any) -> Any:
    raise AssertionError


def module(*names: str) -> CompiledModule:
    more: dict[str, Any] = {"spec": ("arg", "ret"), "names": ("x", "y")}
    functions = {name: index.Handlers(f"be_ffi_{name}", f"be_graph_{name}", **more) for name in names}
    made = ModuleDescription("ops", "cpp", Path("/m.so"), functions, "content", "origin")
    info = ModuleInfo(made, ctypes.CDLL(None), Registry(unused), Mock(Rebuilder), captures_graphs=True)
    return CompiledModule(info)


@pytest.mark.filterwarnings("error")
def test_names_of_our_own_making_are_free_for_kernels() -> None:
    ops = module(*INTERNALS)
    for name in INTERNALS:
        assert isinstance(getattr(ops, name), KernelFunction), name
        assert getattr(ops, name) is ops[name]
    assert (ops.name, ops.path, ops.content_hash, ops.function_names) == ("ops", Path("/m.so"), "content", INTERNALS)
    assert ops.info is be_runtime.ModuleInfo.of(ops) is copy.deepcopy(ops).info
    assert ops.info.platform == "cpu"
    assert repr(ops).startswith("CompiledModule(name='ops', functions=['carry', ")


def test_names_that_python_itself_looks_up_are_reached_by_brackets() -> None:
    with pytest.warns(UserWarning, match=r"hide functions: call module\['__class__'\], module\['__info__'\]$"):
        ops = module("__class__", "f", "__info__")
    assert all(isinstance(ops[name], KernelFunction) for name in ("__class__", "__info__"))


@pytest.mark.parametrize("names", [*((name,) for name in OWN), OWN, ("path", "f", "report")])
def test_a_kernel_hides_the_modules_own_which_one_warning_tells(names: tuple[str, ...]) -> None:
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        ops = module(*names)
    (message,) = [str(each.message) for each in caught]
    assert all(isinstance(getattr(ops, name), KernelFunction) for name in names)
    assert isinstance(ops.info, KernelFunction) == ("info" in names)
    info = ModuleInfo.of(ops)
    start, _, rows = message.partition(": use ")
    assert start == "module 'ops': functions hide attributes of the module"
    told = {}
    for row in rows.split(", "):
        own, _, hidden = row.partition(" instead of module.")
        told[hidden] = eval(own, {"module": ops, "be_runtime": be_runtime})  # noqa: S307 - the warning's code runs
    assert told == {name: info if name == "info" else getattr(info, name) for name in names if name in OWN}
    assert (info.name, info.path, info.content_hash, info.function_names) == ("ops", Path("/m.so"), "content", [*names])
    for name in {*OWN} - {*names, "info"}:
        assert getattr(ops, name) == getattr(info, name)


def test_dir_lists_what_there_is() -> None:
    with pytest.warns(UserWarning, match=r": use module\.info\.path instead of module\.path$"):
        ops = module("path", "f", "a.f", "__odd")
    assert {*OWN, "f", "a.f", "__odd"} <= {*dir(ops)}
    for name in dir(ops):
        getattr(ops, name)
    with pytest.raises(AttributeError, match="module 'ops' has no function 'mode'; it has path, f"):
        _ = ops.mode
