"""Measure in processes that a test starts; the context is the test's id."""

import os

if "PYTEST_CURRENT_TEST" in os.environ and "COVERAGE_PROCESS_START" in os.environ:
    import coverage

    coverage.process_startup()
