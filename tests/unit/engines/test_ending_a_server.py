"""A child process is always ended, and what it started with it."""

import pytest

from slipway.tasks.adapters.process import Process, free_ports
from tests.support.processes import is_running, state_of
from tests.support.waiting import until


def wait_for(file):
    return int(until(lambda: file.exists() and file.read_text().strip()))


def test_a_child_that_ignores_sigterm_is_killed_with_all_that_it_started(tmp_path):
    inner = f"sleep 3600 & echo $! > {tmp_path}/inner; wait"
    script = f"trap '' TERM; sh -c '{inner}' & echo $! > {tmp_path}/outer; echo $$ > {tmp_path}/child; wait; sleep 3600"

    with Process(["sh", "-c", script], tmp_path / "log", grace_s=0.2):
        child, outer, innermost = (wait_for(tmp_path / name) for name in ("child", "outer", "inner"))

    assert state_of(child) == ""
    assert not is_running(outer)
    assert not is_running(innermost)


def once(file):
    """Have a shell wait for a file, and fail if it does not come."""
    return f"i=0; until [ -e {file} ]; do sleep 0.05; i=$((i + 1)); [ $i -lt 1200 ] || exit 9; done"


class Seen(Process):
    """Touches `go` once it has seen what wrote its id into `file`."""

    def __init__(self, script, file, go):
        super().__init__(["sh", "-c", script], file.with_name("log"))
        self._file, self._go = file, go

    def look(self):
        is_written = self._file.exists() and self._file.read_text().strip()
        super().look()
        if is_written:
            self._go.touch()


@pytest.mark.parametrize("end", ["exit 134", "kill -KILL $$"])
@pytest.mark.parametrize("waits", [True, False])
def test_what_a_child_started_that_ended_by_itself_is_ended(tmp_path, end, waits):
    inner, go = tmp_path / "inner", tmp_path / "go"
    script = f"sleep 3600 & echo $! > {inner}; {once(go)}; {end}"

    with Seen(script, inner, go) as process:
        assert (process.wait() if waits else until(lambda: process.exit_code)) in {134, -9}
        pid = wait_for(inner)
        assert is_running(pid)

    assert not is_running(pid)


def test_what_a_worker_starts_after_the_child_has_ended_is_ended(tmp_path):
    outer, go, inner, on = (tmp_path / name for name in ("outer", "go", "inner", "on"))
    works_on = f"{once(on)}; sleep 3600 & echo $! > {inner}; wait"
    script = f"sh -c '{works_on}' & echo $! > {outer}; {once(go)}; exit 1"

    with Seen(script, outer, go) as process:
        assert process.wait() == 1
        on.touch()
        pid = wait_for(inner)

    assert not is_running(wait_for(outer))
    assert not is_running(pid)


def test_what_a_child_starts_as_it_ends_is_ended(tmp_path):
    begun, go, inner = (tmp_path / name for name in ("begun", "go", "inner"))
    as_it_ends = f"sleep 3600 & echo $! > {inner}; {once(go)}; exit 3"
    script = f"trap '{as_it_ends}' TERM; echo $$ > {begun}; while :; do sleep 0.05; done"

    with Seen(script, inner, go) as process:
        wait_for(begun)

    assert process.exit_code == 3
    assert not is_running(wait_for(inner))


def test_what_a_worker_starts_once_the_child_was_told_to_end_is_ended(tmp_path):
    begun, on, inner = (tmp_path / name for name in ("begun", "on", "inner"))
    left = f"{once(on)}; sleep 3600 & echo $! > {inner}; wait"
    script = f"trap 'touch {on}; {once(inner)}; exit 3' TERM; sh -c '{left}' & echo $! > {begun}; while :; do sleep 0.05; done"

    with Process(["sh", "-c", script], tmp_path / "log") as process:
        outer = wait_for(begun)

    assert process.exit_code == 3
    assert not is_running(outer)
    assert not is_running(wait_for(inner))


def test_a_child_is_ended_when_the_block_fails(tmp_path):
    with pytest.raises(ZeroDivisionError), Process(["sleep", "60"], tmp_path / "log") as process:
        raise ZeroDivisionError

    assert process.exit_code == -15


def test_a_child_that_ended_by_itself_tells_its_code_and_last_lines(tmp_path):
    with Process(["sh", "-c", "echo one; echo; echo two >&2; exit 7"], tmp_path / "log") as process:
        until(lambda: process.exit_code is not None)

        assert process.exit_code == 7
        assert process.tail(1) == ["two"]
        assert process.tail(9) == ["one", "two"]


def test_free_ports_differ():
    assert len(set(free_ports(8, "127.0.0.1"))) == 8
