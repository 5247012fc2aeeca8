"""Tuning of C++ kernels: the fastest of the right ones is chosen once, and kept for other processes or in a package."""

from __future__ import annotations

import json
import subprocess
import sys
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any
from uuid import uuid4

import jax
import jax.numpy as jnp
import numpy as np
import pytest

import be_runtime
from be_runtime.cli.main import main
from be_runtime.ship.package_store import Package
from be_runtime.ship.wheel import source_files
from be_runtime.tune.winners import Winner
from tests.compile.be_runtime.processes import python
from tests.support.runtime import environment, run_python

SOURCE = r"""
#include "brainevent/common.h"
#include <cstdio>
#include <unistd.h>
// @BE shift arg[n] ret[n]
void shift(const BE::Tensor x, BE::Tensor y) {
  usleep(SLEEP_US);
  for (int64_t i = 0; i < x.numel(); ++i) y.data_ptr<float>()[i] = x.data_ptr<float>()[i] + BY;
  if (const char* log = LOG; *log) {
    if (FILE* file = std::fopen(log, "a")) { std::fputc('.', file); std::fclose(file); }
  }
}
"""
PROGRAM = f'''
import json, sys, jax, jax.numpy as jnp, be_runtime
SOURCE = r"""{SOURCE}"""
LOG = sys.argv[1]
def op(sleep_us, by=1):
    flags = [f"-DSLEEP_US={{sleep_us}}", f"-DBY={{by}}", f'-DLOG="{{LOG}}"']
    return be_runtime.load_cpp_inline(f"shift_{{sleep_us}}_{{by}}", SOURCE, extra_cflags=flags).shift
x = jnp.arange(float(sys.argv[2]))
tuned = be_runtime.autotune(op, {{"sleep_us": [20000, 100]}}, [x], runs=12)
y = jax.jit(tuned)(x)
print(json.dumps([len(tuned.results), tuned.config(x), y.tolist()[:2]]))
'''


def op(sleep_us: int, by: int = 1) -> Any:
    flags = [f"-DSLEEP_US={sleep_us}", f"-DBY={by}", '-DLOG=""']
    return be_runtime.load_cpp_inline(f"tuned_{sleep_us}_{by}", SOURCE, extra_cflags=flags).shift


X = jnp.arange(100.0)
SLOW, FAST, WRONG, BROKEN = {"sleep_us": 20000}, {"sleep_us": 1}, {"sleep_us": 1, "by": 2}, {"sleep_us": "x"}
RUN = uuid4().hex[:8]
"""Part of all names, since the cache keeps what earlier runs of these tests chose."""


def tune(configs: Any, name: str, *args: Any, of: Any = op, **options: Any) -> be_runtime.Tuned:
    return be_runtime.autotune(of, configs, args or (X,), name=f"{name}_{RUN}", runs=12, **options)


def test_the_fastest_of_the_right_ones_is_chosen():
    tuned = tune([SLOW, WRONG, BROKEN, FAST], "chosen")
    (trials,) = tuned.results
    first, wrong, broken, fast = trials.trials
    assert trials.chosen == tuned.config(X) == FAST, str(trials)
    assert wrong.rejected == "result 0 at (0,) is 2.0, and 1.0 with the first configuration"
    assert broken.rejected.startswith("BuildError")
    assert first.warm_us is not None
    assert fast.warm_us is not None
    assert first.warm_us > fast.warm_us
    assert (wrong.warm_us, broken.warm_us) == (None, None)
    np.testing.assert_array_equal(tuned(X), X + 1)


def test_a_tuning_prints_as_a_table_and_what_was_kept_as_another():
    configs = {"sleep_us": [20000, 1]}
    tuned = tune(configs, "printed")
    head, _, table = str(tuned).partition(", tuned now\n\n")
    assert (head, table) == (tuned.name, str(tuned.results[0]))
    (line,) = (line for line in table.splitlines() if line.endswith("chosen"))
    assert '{"sleep_us": 1}' in line
    kept = str(tune(configs, "printed")).splitlines()
    assert kept[0] == f"{tuned.name}, choices that are kept"
    assert kept[2].split("  ")[0] == "sizes"
    assert kept[3].startswith('float32[128]  {"sleep_us": 1}  ')
    untimed = be_runtime.autotune(op, configs, name=f"never_{RUN}")
    assert str(untimed) == f'{untimed.name}, not tuned yet: 2 configurations, first {{"sleep_us": 20000}}'


def test_the_first_that_works_is_the_one_whose_results_are_right():
    tuned = tune([BROKEN, WRONG, {"sleep_us": 1, "by": 3}], "second_first")
    assert tuned.config(X) == WRONG
    assert "result 0" in tuned.results[0].trials[2].rejected
    named = 'this was the configuration {"sleep_us": "x"}'
    with pytest.raises(be_runtime.BuildError, match=named):
        tune([BROKEN, {"sleep_us": "y"}], "none_works")
    with pytest.raises(be_runtime.BuildError, match=named):
        be_runtime.autotune(op, [BROKEN, FAST], name=f"untimed_{RUN}")(X)
    with pytest.raises(ZeroDivisionError) as caught:
        tune([{"sleep_us": 0}], "raises", of=lambda sleep_us: lambda x: x + 1 // sleep_us)
    assert caught.value.__notes__[-1] == 'this was the configuration {"sleep_us": 0}'


def test_programs_use_the_choice_and_time_nothing():
    tuned = tune([SLOW, FAST], "programs")
    np.testing.assert_array_equal(jax.jit(lambda x: tuned(x) * 2)(X), 2 * (X + 1))
    np.testing.assert_array_equal(jax.vmap(tuned)(jnp.ones((3, 100))), 2 * jnp.ones((3, 100)))
    other = jnp.arange(5000.0)
    assert jax.eval_shape(tuned, other).shape == (5000,)
    assert tuned.config(other) == FAST, "that of the nearest sizes"
    assert tuned.config(jnp.arange(4)) == SLOW, "nothing is known of integers"
    assert len(tuned.results) == 1
    with pytest.raises(be_runtime.ArgumentError, match="within a program"):
        jax.jit(tuned.tune)(X)


def test_attributes_are_passed_on_and_may_be_in_the_bucket():
    def scaled(sleep_us: int) -> Any:
        shift = op(sleep_us)
        return lambda x, by: shift(x) * by

    def by_attribute(x: Any, by: int) -> str:
        return f"float32[{len(x)}] {by}"

    tuned = be_runtime.autotune(scaled, [SLOW, FAST], name=f"attributes_{RUN}", runs=12, bucket=by_attribute)
    assert tuned.config(X, by=2) == SLOW
    trials = tuned.tune(X, by=2)
    assert (trials.chosen, trials.bucket) == (FAST, "float32[100] 2")
    np.testing.assert_array_equal(jax.jit(lambda x: tuned(x, by=2))(X), 2 * (X + 1))


def test_several_sets_of_arrays_have_a_choice_each_and_are_made_only_if_needed():
    asked: list[int] = []

    def arrays() -> list[list[jax.Array]]:
        asked.append(1)
        return [[jnp.ones(4)], [jnp.ones(64)]]

    tuned = be_runtime.autotune(op, [FAST, SLOW], arrays, name=f"several_{RUN}", runs=12)
    assert [each.bucket for each in tuned.results] == ["float32[4]", "float32[64]"]
    assert asked == [1]


def test_the_setting_says_what_is_timed_and_whether_a_kept_choice_counts(monkeypatch: pytest.MonkeyPatch):
    for kept in (False, True):
        for mode in ("off", "cached", "on"):
            monkeypatch.setenv("BE_AUTOTUNE", mode)
            tuned = tune([SLOW, FAST], "kept_choice" if kept else f"mode_{mode}")
            assert len(tuned.results) == (mode == "on" and not kept)
            assert tuned.config(X) == (FAST if mode == "on" or (kept and mode == "cached") else SLOW)
        tune([SLOW, FAST], "kept_choice")


def test_nothing_is_timed_in_checked_mode():
    with be_runtime.debug():
        tuned = tune([SLOW, FAST], "while_checked")
        assert tuned.results == []
        with pytest.raises(be_runtime.ArgumentError, match="can't be tuned in checked mode"):
            tuned.tune(X)
    assert tuned.tune(X).chosen == FAST


def test_a_choice_of_another_type_is_none_of_the_authors(monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setenv("BE_AUTOTUNE", "cached")
    tuned = tune([SLOW, FAST], "of_another_type")
    row = Winner(tuned.name, "float32[4]", {"sleep_us": True}, 1.0, 2.0, "", "", "", "")
    monkeypatch.setattr(tuned, "_rows", lambda _device: (row,))
    assert tuned.config(jnp.ones(4)) == SLOW


def test_another_source_or_other_configurations_are_tuned_anew():
    def other(sleep_us: int) -> Any:
        return op(sleep_us, by=3)

    for configs, of, timed in (
        ([SLOW, FAST], op, 1),
        ([SLOW, FAST], other, 1),
        ([SLOW, FAST, WRONG], op, 1),
        ([SLOW, FAST], op, 0),
    ):
        assert len(tune(configs, "by_source", of=of).results) == timed


def run(log: Path, cache: Path, extent: int = 100) -> tuple[int, dict[str, int], list[float]]:
    done = run_python(PROGRAM, str(log), str(extent), env=environment(BE_CACHE_DIR=str(cache)))
    timed, config, values = json.loads(done.stdout)
    return timed, config, values


def test_a_second_process_times_nothing_and_calls_the_kernel_once(tmp_path: Path):
    log, cache = tmp_path / "calls", tmp_path / "cache"
    assert run(log, cache) == (1, {"sleep_us": 100}, [1.0, 2.0])
    assert len(log.read_text()) > 20
    log.unlink()
    assert run(log, cache) == (0, {"sleep_us": 100}, [1.0, 2.0])
    assert log.read_text() == ".", "the one call of the program"
    log.unlink()
    assert run(log, cache, extent=5000)[0] == 1, "other sizes are timed"


@pytest.mark.full
def test_of_two_processes_one_tunes(tmp_path: Path):
    env = environment(BE_CACHE_DIR=str(tmp_path / "cache"))
    argv = [sys.executable, "-c", PROGRAM, str(tmp_path / "calls"), "100"]
    running = [subprocess.Popen(argv, env=env, stdout=subprocess.PIPE, text=True) for _ in range(2)]
    told = [json.loads(each.communicate(timeout=240)[0]) for each in running]
    assert sorted(timed for timed, *_ in told) == [0, 1]
    assert {config["sleep_us"] for _, config, _ in told} == {100}


def test_threads_share_one_function_for_a_configuration():
    made: list[int] = []

    def slow_op(by: int) -> Any:
        made.append(by)
        return lambda x: x + by

    tuned = be_runtime.autotune(slow_op, {"by": [1, 2]}, name="threads")
    with ThreadPoolExecutor(4) as pool:
        found = list(pool.map(lambda _: float(tuned(X)[0]), range(8)))
    assert found == [1.0] * 8


def test_bad_arguments_are_refused():
    with pytest.raises(be_runtime.ArgumentError, match="is not allowed"):
        be_runtime.autotune(op, {}, [X], name="a b")
    with pytest.raises(be_runtime.ArgumentError, match="runs=0"):
        be_runtime.autotune(op, {"sleep_us": [1]}, [X], runs=0)
    with pytest.raises(be_runtime.ArgumentError, match="returned None"):
        be_runtime.autotune(lambda **_: None, [{}], name="nothing")(X)  # type: ignore[arg-type]


PACKAGE_INIT = """
import jax.numpy as jnp
from be_runtime import autotune, load_cpp_file
from pathlib import Path

HERE = Path(__file__).parent

def make_scale(sleep_us):
    return load_cpp_file(HERE / "k.cc", name=f"scale_{sleep_us}", extra_cflags=[f"-DSLEEP_US={sleep_us}"]).scale

scale = autotune(make_scale, {"sleep_us": [20000, 50]}, lambda: [jnp.ones(64)], package=__name__, runs=12)
"""
PACKAGE_SOURCE = r"""
#include "brainevent/common.h"
#include <unistd.h>
// @BE scale arg[n] ret[n]
void scale(const BE::Tensor x, BE::Tensor y) {
  usleep(SLEEP_US);
  for (int64_t i = 0; i < x.numel(); ++i) y.data_ptr<float>()[i] = 2 * x.data_ptr<float>()[i];
}
"""
USE = """
import json, jax.numpy as jnp, tunedpkg
x = jnp.ones(50)
print(json.dumps([tunedpkg.scale.config(x), len(tunedpkg.scale.results), tunedpkg.scale(x).tolist()[0]]))
"""


def test_a_package_carries_its_choices(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
):
    package = tmp_path / "tunedpkg"
    package.mkdir()
    (package / "__init__.py").write_text(PACKAGE_INIT)
    (package / "k.cc").write_text(PACKAGE_SOURCE)

    def used(**environ: Any) -> Any:
        return json.loads(python(tmp_path, "-c", USE, **environ).stdout)

    assert used() == [{"sleep_us": 20000}, 0, 2.0], "an import times nothing"
    monkeypatch.syspath_prepend(tmp_path)
    assert main(["tune", "tunedpkg", "--json"]) == 0
    told = json.loads(capsys.readouterr().out)
    assert told["tunings"] == [{"name": "make_scale", "bucket": "float32[64]", "chosen": {"sleep_us": 50}}]
    (row,) = json.loads((package / "tuned.json").read_text())["rows"]
    assert row["us"] < row["first_us"]
    assert used(BE_CACHE_DIR=str(tmp_path / "cache")) == [{"sleep_us": 50}, 0, 2.0], (
        "another cache: the package's choice"
    )
    assert "tunedpkg/tuned.json" in source_files(Package("tunedpkg", package), tmp_path)
    (package / "k.cc").write_text(PACKAGE_SOURCE.replace("2 * x", "4 * x"))
    assert used() == [{"sleep_us": 20000}, 0, 4.0], "the choice was for another source"


def test_a_package_that_tunes_nothing_is_refused(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
):
    (tmp_path / "plainpkg").mkdir()
    (tmp_path / "plainpkg" / "__init__.py").touch()
    monkeypatch.syspath_prepend(tmp_path)
    assert main(["tune", "plainpkg"]) == 1
    said = capsys.readouterr().err
    assert "plainpkg declares nothing to tune" in said
    assert "package='plainpkg'" in said
