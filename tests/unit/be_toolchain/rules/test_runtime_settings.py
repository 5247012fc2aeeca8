"""The doctor names the settings with which nothing can be loaded."""

from __future__ import annotations

from be_toolchain.report.doctor import examine_machine
from be_toolchain.report.report_text import render_report
from be_toolchain.rules.runtime_settings import find_bad_settings
from tests.support.machines import healthy


def test_the_first_of_two_variables_counts():
    environ = {"BE_COMPUTE_CAPABILITIES": "9.0", "BRAINEVENT_COMPUTE_CAPABILITIES": "ninety"}
    assert list(find_bad_settings(environ)) == []


def test_the_doctor_names_every_one_and_says_that_nothing_can_be_loaded():
    machine = healthy()
    machine.environ = {**machine.environ, "BE_COMPUTE_CAPABILITIES": "ninety", "BE_MAX_JOBS": "many"}
    report = examine_machine(machine)
    text = render_report(report)
    assert report.exit_code == 2
    assert "BE_COMPUTE_CAPABILITIES is 'ninety'" in text
    assert text.count("BE_MAX_JOBS is 'many', expected a whole number above 0") == 1
    assert "next: unset BE_MAX_JOBS" in text
    assert text.endswith("With these settings neither C++ nor CUDA builds can work here.")
    assert [problem.code for problem in report.problems] == ["TC102", "TC102"]


def test_a_setting_that_stops_the_search_is_shown_with_the_others():
    machine = healthy()
    machine.environ = {**machine.environ, "BE_NVCC_PREFER": "moon", "BE_MAX_JOBS": "many"}
    report = examine_machine(machine)
    assert [finding.message.split()[0] for finding in report.findings] == ["BE_NVCC_PREFER", "BE_MAX_JOBS"]


def test_a_cache_folder_that_means_nothing_is_reported_once():
    machine = healthy()
    machine.environ = {name: text for name, text in machine.environ.items() if name != "HOME"} | {"BE_CACHE_DIR": "~/c"}
    failed = [finding.message for finding in examine_machine(machine).findings if finding.status == "fail"]
    assert failed == ["BE_CACHE_DIR is '~/c', expected a path without ~, since HOME is not set"]
