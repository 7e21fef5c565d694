"""A pytest plugin: what each test and fixture took, as properties of the test in JUnit's report.

`setup`, `call` and `teardown` are phases of the test. `fixture NAME` is a part of `setup`: what making it took, without
the fixtures that it asks for. A value is wall seconds and CPU seconds, of this process and of children that have ended.
"""

import os
import time

import pytest

WORTH_TELLING_S = 0.05


class Reading:
    """Seconds since it was made."""

    def __init__(self):
        self.wall, self.cpu = _now()

    def record(self, item, name):
        """Add it to the properties of a test, if it is long enough to matter."""
        wall, cpu = _now()
        if wall - self.wall > WORTH_TELLING_S:
            item.user_properties.append((name, f"{wall - self.wall:.2f} {cpu - self.cpu:.2f}"))


def _now():
    return time.monotonic(), sum(os.times()[:4])


class Timing:
    """Times phases and fixtures in the process that runs the tests."""

    def __init__(self):
        self.item, self.phase = None, Reading()

    @pytest.hookimpl(wrapper=True)
    def pytest_runtest_protocol(self, item):
        self.item, self.phase = item, Reading()
        return (yield)

    @pytest.hookimpl(wrapper=True)
    def pytest_fixture_setup(self, fixturedef):
        began = Reading()
        try:
            return (yield)
        finally:
            began.record(self.item, f"fixture {fixturedef.argname}")

    @pytest.hookimpl(wrapper=True, tryfirst=True)
    def pytest_runtest_makereport(self, item, call):
        self.phase.record(item, call.when)
        self.phase = Reading()
        return (yield)


def pytest_configure(config):
    config.pluginmanager.register(Timing())
