"""A pytest plugin: a failed test shows what services logged meanwhile.

Whatever starts a service names its log files here: `tell(LogFiles(folder))`. A folder that is gone has nothing to say.
"""

import time
from contextlib import suppress
from pathlib import Path
from stat import S_ISREG

import pytest

from tests.support.walking import below

KEPT_CHARACTERS = 4000
_sources = []


class LogFiles:
    """Files of a folder, or one file; what came before the test began is left out."""

    def __init__(self, path, ending="log"):
        self._path, self._ending, self._sizes = Path(path), ending, {}

    def begin(self):
        """A test begins."""
        self._sizes = dict(self._found())

    def said(self):
        """Name and end of each file that has grown since."""
        for file, size in self._found():
            before = self._sizes.get(file, 0)
            if size > before:
                with suppress(FileNotFoundError), file.open("rb") as log:  # it may have ended with its pod
                    log.seek(max(before, size - KEPT_CHARACTERS))
                    yield file.relative_to(self._path.parent).as_posix(), log.read().decode(errors="replace")

    def _found(self):
        if self._path.is_file():
            yield self._path, self._path.stat().st_size
        named = ((path, status) for path, status in below(self._path) if path.name.endswith(self._ending))
        found = ((path, status.st_size) for path, status in named if S_ISREG(status.st_mode))
        yield from sorted(found)


class Told:
    """Something that only a function knows, of the seconds of the epoch when the test began."""

    def __init__(self, name, since):
        self._name, self._since, self._began_at = name, since, 0.0

    def begin(self):
        """A test begins."""
        self._began_at = time.time()

    def said(self):
        """What the function says, if anything."""
        if text := self._since(self._began_at):
            yield self._name, text


def tell(source):
    """Add to what failed tests show; tests that begin later leave out what was said before."""
    _sources.append(source)


@pytest.hookimpl(tryfirst=True)
def pytest_runtest_logstart():
    for source in _sources:
        source.begin()


@pytest.hookimpl(wrapper=True)
def pytest_runtest_makereport():
    report = yield
    if report.failed:
        report.sections += [(f"Logged meanwhile: {name}", text) for source in _sources for name, text in source.said()]
    return report
