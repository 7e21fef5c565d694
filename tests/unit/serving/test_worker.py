"""A worker that a stranger's input may end: its client is told why, and the next one is served."""

from pathlib import Path

import pytest
from generation.worker import Budget, Worker, WorkError

CHILD = """
import os, sys, time
from generation.worker import serve

def work(request):
    if request == "pid":
        return os.getpid()
    if request == "sleep":
        time.sleep(60)
    if request == "die":
        os._exit(3)
    if request == "eat":
        return len(bytearray(1 << 30))
    if request == "raise":
        raise ValueError("first line\\nno such thing")
    return {"echo": request}

def prepare():
    if sys.argv[1] == "broken":
        raise RuntimeError("nothing to work with")
    return work

sys.exit(serve(int(sys.argv[2]), int(sys.argv[3]), prepare))
"""


@pytest.fixture
def start(tmp_path):
    (tmp_path / "child.py").write_text(CHILD)
    workers = []

    def start(kind="fine", seconds=20.0):
        workers.append(Worker([str(tmp_path / "child.py"), kind], Budget(seconds, 256 << 20)))
        return workers[-1]

    yield start
    for worker in workers:
        worker.close()


def test_answers_and_errors_come_from_one_process(start):
    worker = start()
    first = worker.ask("pid")
    with pytest.raises(WorkError, match=r"^no such thing$"):
        worker.ask("raise")

    assert worker.ask({"a": "\ud800"}) == {"echo": {"a": "\ud800"}}
    assert worker.ask("pid") == first


def test_too_much_memory_is_an_error_of_that_request(start):
    worker = start()
    with pytest.raises(WorkError, match="MemoryError"):
        worker.ask("eat")

    assert worker.ask(1) == {"echo": 1}


@pytest.mark.parametrize(("request_", "said"), [("sleep", "took more than 0.2 s"), ("die", "ended the process")])
def test_a_process_that_hangs_or_ends_is_replaced(start, request_, said):
    worker = start(seconds=0.2 if request_ == "sleep" else 20.0)
    with pytest.raises(WorkError, match=said):
        worker.ask(request_)

    assert worker.ask(1) == {"echo": 1}


def test_a_worker_that_cannot_start_says_why_each_time(start):
    worker = start("broken")
    for _ in range(2):
        with pytest.raises(WorkError, match="nothing to work with"):
            worker.ask(1)


def test_nothing_is_left_of_a_worker_that_was_closed(start):
    worker = start()
    pid = worker.ask("pid")
    worker.close()

    assert not _runs(pid)


def _runs(pid):
    try:
        with Path(f"/proc/{pid}/stat").open() as stat:
            return stat.read().rpartition(")")[2].split()[0] != "Z"
    except FileNotFoundError:
        return False
