"""Sources that are edited while a process runs: what is called next is what was saved last."""

from __future__ import annotations

import inspect
import os
import threading
import time
from collections.abc import Callable, Generator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import jax
import jax.numpy as jnp
import pytest

import be_runtime
from be_runtime import RegistrationError
from tests.compile.be_runtime.scaling import scaling
from tests.support.runtime import run_python

HEADER = '#include "brainevent/common.h"\n'
X = jnp.arange(3.0)


def scalings(**by: object) -> str:
    """Functions that multiply by numbers."""
    return "".join(scaling(name, number) for name, number in by.items())


def save(path: Path, before: str = "", **by: object) -> Path:
    """Save functions that multiply by numbers."""
    path.write_text(before + scalings(**by))
    return path


def by_name(target: str) -> jax.Array:
    called: jax.Array = jax.ffi.ffi_call(target, jax.ShapeDtypeStruct((3,), jnp.float32))(X)
    return called


def until(holds: Callable[[], bool]) -> None:
    """Wait for what happens in the background."""
    end = time.monotonic() + 60
    while not holds():
        assert time.monotonic() < end, "it did not happen within a minute"
        time.sleep(0.02)


@pytest.fixture(autouse=True)
def unwatched() -> Generator[None]:
    yield
    be_runtime.unwatch()
    assert [thread.name for thread in threading.enumerate() if "watch" in thread.name] == []


@pytest.fixture
def slowly() -> None:
    """Watch, with a background that doesn't look in the time of a test: the calls look."""
    be_runtime.watch(interval_s=1000)


def test_a_saved_file_is_what_the_next_call_runs(tmp_path: Path, slowly: None):
    path = save(tmp_path / "live_file.cc", f=2)
    module = be_runtime.load_cpp_file(path)
    assert isinstance(module, be_runtime.CompiledModule)
    jitted = jax.jit(module.f)
    assert module.f(X).tolist() == jitted(X).tolist() == [0, 2, 4]
    save(path, f=3)
    assert module.f(X).tolist() == [0, 3, 6]
    assert jitted(X).tolist() == [0, 2, 4], "a program keeps the code that it was traced with"
    assert jitted(X[:2]).tolist() == [0, 3], "but not what is traced from then on"
    save(path, f=2)
    assert module.f(X).tolist() == [0, 2, 4], "back again"


def test_a_saved_file_is_compiled_without_a_call_and_programs_are_traced_anew_if_that_is_wished(tmp_path: Path):
    path = save(tmp_path / "live_background.cc", f=2)
    with be_runtime.watch(interval_s=0.05):
        module = be_runtime.load_cpp_file(path)
        first = module.path
        save(path, f=3)
        until(lambda: module.path != first)
        assert module.f(X).tolist() == [0, 3, 6]
    with be_runtime.watch(retrace=True, interval_s=0.05):
        jitted = jax.jit(module.f)
        assert jitted(X).tolist() == [0, 3, 6]
        save(path, f=4)
        until(lambda: jitted(X).tolist() == [0, 4, 8])
        cell = be_runtime.load_cpp_inline("live_retrace_cell", scalings(f=2))
        program = jax.jit(lambda x: cell.f(x))  # noqa: PLW0108 - looked up as it is traced
        assert program(X).tolist() == [0, 2, 4]
        cell = be_runtime.load_cpp_inline("live_retrace_cell", scalings(f=3))
        assert program(X).tolist() == [0, 3, 6]


def test_an_edited_header_counts_for_texts_and_folders_and_a_folder_follows_new_files(tmp_path: Path, slowly: None):
    header, include = tmp_path / "by.h", '#include "by.h"\n'
    header.write_text("#define BY 2\n")
    save(tmp_path / "a.cc", include, f="BY")
    module = be_runtime.load_cpp_dir(tmp_path, name="live_dir")
    text = include + scalings(f="-BY")
    inline = be_runtime.load_cpp_inline("live_header_inline", text, extra_include_paths=[tmp_path])
    assert module.f(X).tolist() == [0, 2, 4]
    header.write_text("#define BY 5\n")
    assert (module.f(X).tolist(), inline.f(X).tolist()) == ([0, 5, 10], [0, -5, -10])
    save(tmp_path / "b.cc", g=3)
    assert module.g(X).tolist() == [0, 3, 6]
    assert module.function_names == ["f", "g"]
    assert "g" in dir(module)


def test_what_does_not_compile_is_shown_and_the_code_before_runs(
    tmp_path: Path, slowly: None, capsys: pytest.CaptureFixture[str]
):
    path = save(tmp_path / "live_broken.cc", f=2)
    module = be_runtime.load_cpp_file(path)
    save(path, f="no_such_name")
    with pytest.warns(UserWarning, match="live_broken was saved, but fails to load, so the previous code runs"):
        assert module.f(X).tolist() == [0, 2, 4]
    assert f"{path}:4:68: error: 'no_such_name' was not declared" in capsys.readouterr().err
    with pytest.warns(UserWarning, match="the previous code runs"):
        module.f(X)
    assert "error" not in capsys.readouterr().err, "shown once"
    for number, header in enumerate(("", "#error not yet\n")):  # that was never read whole
        name = tmp_path / f"new{number}.h"
        if header:
            name.write_text(header)
        save(path, f'#include "{name.name}"\n', f="BY")
        with pytest.warns(UserWarning, match="the previous code runs"):
            module.f(X)
        name.write_text("#define BY 7\n")
        assert module.f(X).tolist() == [0, 7, 14]


def test_a_source_that_becomes_a_pipe_is_not_waited_for(tmp_path: Path, slowly: None):
    path = save(tmp_path / "live_pipe.cc", f=2)
    module = be_runtime.load_cpp_file(path)
    path.unlink()
    os.mkfifo(path)
    with pytest.warns(UserWarning, match="live_pipe was saved, but fails to load, so the previous code runs"):
        assert module.f(X).tolist() == [0, 2, 4]
    path.unlink()
    save(path, f=3)
    assert module.f(X).tolist() == [0, 3, 6]


def test_functions_come_go_and_take_other_arrays(tmp_path: Path, slowly: None):
    path = save(tmp_path / "live_functions.cc", f=2, g=5)
    module = be_runtime.load_cpp_file(path)
    f, g = module.f, module.g
    two = HEADER + (
        "// @BE f arg[n] arg[n] attr.by:float32 ret[n]:like(0)\n"
        "void f(const BE::Tensor x, const BE::Tensor z, float by, BE::Tensor y) {\n"
        "  for (int64_t i = 0; i < x.numel(); ++i)\n"
        "    y.data_ptr<float>()[i] = by * (x.data_ptr<float>()[i] + z.data_ptr<float>()[i]);\n"
        "}\n"
    )
    path.write_text(two + scaling("h", 3))
    assert f(X, X, by=0.5).tolist() == [0, 1, 2]
    assert list(inspect.signature(f).parameters) == ["x", "z", "by", "outs"]
    assert module.h(X).tolist() == [0, 3, 6]
    assert module.function_names == ["f", "h"]
    with pytest.raises(AttributeError, match=r"live_functions\.g can't be called any more: .*it has f, h"):
        g(X)
    with pytest.raises(AttributeError, match="has no function 'k'; it has f, h"):
        _ = module.k
    with pytest.raises(KeyError, match="has no function 'k'"):
        _ = module["k"]
    save(path, f=2, g=6)
    assert g(X).tolist() == [0, 6, 12]


def test_options_and_rules_stay(tmp_path: Path, slowly: None):
    rule = (
        "// @BE f_bwd arg[n] arg[n] ret[n]:like(0)\n"
        "void f_bwd(const BE::Tensor x, const BE::Tensor ct, BE::Tensor g) {{\n"
        "  for (int64_t i = 0; i < x.numel(); ++i) g.data_ptr<float>()[i] = {by} * ct.data_ptr<float>()[i];\n"
        "}}\n"
    )
    path = tmp_path / "live_rules.cc"
    path.write_text(scalings(f=2, g=2) + rule.format(by=2))
    module = be_runtime.load_cpp_file(path)
    module.f.defvjp(None, "f_bwd")
    ordered = module.g.with_options(ordered=True)
    assert jax.grad(lambda x: module.f(x).sum())(X).tolist() == [2, 2, 2]
    path.write_text(scalings(f=3, g=3) + rule.format(by=30))
    assert ordered(X).tolist() == [0, 3, 6]
    assert jax.make_jaxpr(ordered)(X).effects
    assert not jax.make_jaxpr(module.g)(X).effects
    assert jax.grad(lambda x: module.f(x).sum())(X).tolist() == [30, 30, 30]
    short = rule.format(by=5).replace("arg[n] arg[n]", "arg[n]").replace("const BE::Tensor x, ", "")
    path.write_text(scalings(f=3, g=3) + short.replace("x.numel()", "ct.numel()"))
    assert jax.grad(lambda x: module.f(x).sum())(X).tolist() == [5, 5, 5], "a rule that takes other arrays"
    module.f.defvjp(None, lambda inputs, ct: (7 * ct,))
    assert jax.grad(lambda x: module.f(x).sum())(X).tolist() == [7, 7, 7]


def test_a_changed_text_under_the_same_name(slowly: None, capsys: pytest.CaptureFixture[str]):
    module = be_runtime.load_cpp_inline("live_cell", scalings(f=2, g=2))
    jitted = jax.jit(module.f)
    assert jitted(X).tolist() == [0, 2, 4]
    for by in (3, 4):
        module = be_runtime.load_cpp_inline("live_cell", scalings(f=by, g=by))
        assert module.f(X).tolist() == [0, by, 2 * by]
    assert jitted(X).tolist() == [0, 2, 4]
    assert by_name("live_cell.f").tolist() == [0, 2, 4], "XLA keeps the first code of a name"
    said = "be_runtime: live_cell.f, live_cell.g: the source has changed. Functions of the module call the new"
    assert capsys.readouterr().err.count(said) == 1, "once"


def test_a_name_of_before_the_watch_and_of_a_program(capsys: pytest.CaptureFixture[str]):
    be_runtime.load_cpp_inline("live_before", scalings(f=2))
    program = jax.jit(lambda: by_name("live_before.f"))
    program()
    with be_runtime.watch():
        module = be_runtime.load_cpp_inline("live_before", scalings(f=3))
        assert module.f(X).tolist() == [0, 3, 6]
    assert "live_before.f: the source has changed" in capsys.readouterr().err
    assert program().tolist() == by_name("live_before.f").tolist() == [0, 2, 4]


def test_a_function_with_state(slowly: None):
    text = HEADER + (
        '#include "brainevent/state.h"\n'
        "struct Count {{ mutable int calls = 0; }};\n"
        "// @BE f arg[n] ret[n]:like(0) state\n"
        "void f(const BE::Tensor x, BE::Tensor y, BE::State<Count>& state) {{\n"
        "  y.data_ptr<float>()[0] = {by} * ++state->calls;\n"
        "}}\n"
    )
    for by in (1, 10):
        module = be_runtime.load_cpp_inline("live_state", text.format(by=by))
        assert float(module.f(X)[0]) == by


def test_without_a_watch_nothing_follows_and_several_watches_are_one_within_another(tmp_path: Path):
    path = save(tmp_path / "live_off.cc", f=2)
    with be_runtime.watch(interval_s=0.05):
        watched = be_runtime.load_cpp_file(path)
    unwatched = be_runtime.load_cpp_file(path, target_prefix="live_off_2")
    assert type(unwatched) is be_runtime.CompiledModule
    save(path, f=3)
    assert watched.f(X).tolist() == unwatched.f(X).tolist() == [0, 2, 4]
    with pytest.raises(RegistrationError):
        be_runtime.load_cpp_file(path)
    outer = be_runtime.watch(interval_s=1000)
    with be_runtime.watch(retrace=True):
        assert watched.f(X).tolist() == [0, 3, 6], "followed again"
    save(path, f=4)
    assert watched.f(X).tolist() == [0, 4, 8], "the outer watch goes on"
    with outer:
        pass
    save(path, f=5)
    assert watched.f(X).tolist() == [0, 4, 8]


@pytest.mark.parametrize("options", [{"interval_s": 0}, {"interval_s": float("nan")}, {"retrace": 1}])
def test_bad_arguments(options: dict[str, object]):
    with pytest.raises(be_runtime.ArgumentError, match=next(iter(options))):
        be_runtime.watch(**options)  # type: ignore[arg-type]


def test_many_edits_from_several_threads(tmp_path: Path):
    path = save(tmp_path / "live_many.cc", f=0)
    done = threading.Event()
    with be_runtime.watch(interval_s=0.01), ThreadPoolExecutor(3) as pool:
        module = be_runtime.load_cpp_file(path)

        def call() -> set[float]:
            seen = set()
            while not done.is_set():
                seen.add(float(module.f(X)[1]))
            return seen

        callers = [pool.submit(call) for _ in range(3)]
        try:
            for number in range(1, 5):
                save(tmp_path / "fresh", f=number).rename(path)
                assert float(module.f(X)[1]) == number, "saved, then called"
        finally:
            done.set()
        assert set().union(*(caller.result() for caller in callers)) <= set(map(float, range(5)))


FORKING = """
import os, sys, be_runtime
from pathlib import Path
path, changed = Path(sys.argv[1]), sys.argv[2]
be_runtime.watch(interval_s=0.01)
module = be_runtime.load_cpp_file(path)
child = os.fork()
if child == 0:
    path.write_text(changed)
    import jax.numpy as jnp
    os._exit(int(module.f(jnp.ones(1))[0]))
print(os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]))
"""


@pytest.mark.full
def test_a_forked_child_follows_too(tmp_path: Path):
    done = run_python(FORKING, str(save(tmp_path / "live_fork.cc", f=2)), scalings(f=41))
    assert done.stdout.split() == ["41"], done.stderr


def test_a_prebuilt_folder_is_not_looked_at_unless_nothing_may_be_compiled(
    tmp_path: Path, tmp_cache: Path, monkeypatch: pytest.MonkeyPatch, slowly: None
):
    path = save(tmp_path / "live_prebuilt.cc", f=2)
    be_runtime.load_cpp_file(path)
    be_runtime.export_prebuilt(tmp_path / "prebuilt")
    monkeypatch.setenv("BE_PREBUILT_DIR", str(tmp_path / "prebuilt"))
    module = be_runtime.load_cpp_file(path)
    save(path, f=3)
    assert module.f(X).tolist() == [0, 3, 6]
    save(path, f=2)
    monkeypatch.setenv("BE_JIT", "never")
    fixed = be_runtime.load_cpp_file(path, target_prefix="live_prebuilt_2")
    save(path, f=3)
    assert fixed.f(X).tolist() == [0, 2, 4]


@pytest.mark.full
def test_checked_mode_checks_the_new_code(tmp_path: Path, slowly: None):
    path = save(tmp_path / "live_checked.cc", f=2)
    module = be_runtime.load_cpp_file(path)
    with be_runtime.debug():
        assert module.f(X).tolist() == [0, 2, 4]
    path.write_text(path.read_text().replace("i < x.numel()", "i <= x.numel()"))
    with be_runtime.debug(), pytest.raises(be_runtime.FindingError, match=r"live_checked\.f"):
        module.f(X)
    module = be_runtime.load_cpp_file(path, target_prefix="live_checked_2", debug=True)
    with pytest.raises(be_runtime.FindingError, match=r"live_checked\.f"):
        module.f(X)
    save(path, f=4)
    assert module.f(X).tolist() == [0, 4, 8]
