"""Runs the tests: parts.py declares them, schedule.py decides what runs beside what, jobs.py runs one, durations.py
writes what it took. Standard library only: this runs before any environment is made.
"""

from tests.support.paths import REPOSITORY

REPORTS = REPOSITORY / ".slipway" / "tests"
"""Of each part what it printed, and JUnit's report."""
