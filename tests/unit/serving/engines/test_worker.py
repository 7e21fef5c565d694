"""A worker that a stranger's input may end: its client is told why, and the next one is served."""

import resource
from concurrent.futures import FIRST_COMPLETED, ThreadPoolExecutor, wait

import pytest
from generation.workers.worker import Budget, BusyError, LimitError, Worker, WorkError, Workers

from tests.support.processes import is_running
from tests.support.waiting import PATIENCE_S, until

CHILD = """
import os, sys, time
from pathlib import Path
from generation.workers.worker import serve

def work(request):
    if request == "pid":
        return os.getpid()
    if request == "environment":
        return dict(os.environ)
    if request == "sleep":
        time.sleep(60)
    if isinstance(request, dict) and "until" in request:
        Path(request["until"], "begun").touch()
        while not Path(request["until"], "go").exists():
            time.sleep(0 if "turning" in request else 0.01)
        return "went"
    if request == "turn":
        while True:
            pass
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

    def start(kind="fine", seconds=PATIENCE_S, cpu_s=0.1, count=0):
        program, budget = [str(tmp_path / "child.py"), kind], Budget(cpu_s, seconds, 256 << 20)
        workers.append(Workers(program, budget, count=count) if count else Worker(program, budget))
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


def test_the_process_has_no_secret_in_its_environment(start, monkeypatch):
    monkeypatch.setenv("HF_TOKEN", "hf_planted")
    monkeypatch.setenv("AWS_SECRET_ACCESS_KEY", "planted")

    found = start().ask("environment")

    assert "PATH" in found
    assert [name for name, value in found.items() if "planted" in value] == []


def test_too_much_memory_is_an_error_of_that_request(start):
    worker = start()
    with pytest.raises(WorkError, match="MemoryError"):
        worker.ask("eat")

    assert worker.ask(1) == {"echo": 1}


ENDS = [("sleep", "took more than 2 s"), ("turn", "took more than 0.1 s of a CPU"), ("die", "ended the process")]


@pytest.mark.parametrize(("request_", "said"), ENDS)
def test_a_process_that_hangs_or_ends_is_replaced(start, request_, said):
    worker = start(seconds=2.0 if request_ == "sleep" else PATIENCE_S)
    with pytest.raises(LimitError, match=said):
        worker.ask(request_)

    assert until(lambda: answer_of(worker)) == {"echo": 1}


def answer_of(worker):
    """The answer; None where the process was held up for the 2 s that it has in this test."""
    try:
        return worker.ask(1)
    except LimitError as error:
        if "took more than 2 s" in str(error):
            return None
        raise


def test_a_worker_that_cannot_start_says_why_each_time(start):
    worker = start("broken")
    for _ in range(2):
        with pytest.raises(WorkError, match="nothing to work with"):
            worker.ask(1)


def test_one_is_asked_again_while_none_else_is_needed(start):
    workers = start(count=3)

    assert workers.ask("pid") == workers.ask("pid")


def test_when_all_work_the_next_request_is_told_to_come_again(start, tmp_path):
    workers = start(count=1)
    with ThreadPoolExecutor(1) as other:
        working = other.submit(workers.ask, {"until": str(tmp_path)})
        until((tmp_path / "begun").exists)
        with pytest.raises(BusyError, match=r"Ask again\.$"):
            workers.ask(1)
        (tmp_path / "go").touch()

        assert working.result() == "went"


def test_half_of_them_may_work_for_long(start, tmp_path, monkeypatch):
    monkeypatch.setattr("generation.workers.worker.LONG_CPU_S", 0.01)
    workers = start(count=2, cpu_s=20.0, seconds=PATIENCE_S)
    with ThreadPoolExecutor(2) as others:
        both = [others.submit(workers.ask, {"until": str(tmp_path), "turning": True}) for _ in range(2)]
        (refused,) = wait(both, return_when=FIRST_COMPLETED).done
        with pytest.raises(BusyError, match=r"Ask again\.$"):
            refused.result()
        assert workers.ask(1) == {"echo": 1}
        (tmp_path / "go").touch()

        assert [each.result() for each in both if each is not refused] == ["went"]


def test_the_kernel_ends_the_work_if_its_parent_cannot(start, tmp_path):
    worker = start(cpu_s=0.5)
    pid = worker.ask("pid")
    with ThreadPoolExecutor(1) as other:
        working = other.submit(worker.ask, {"until": str(tmp_path)})
        until((tmp_path / "begun").exists)
        limit_s, _ = resource.prlimit(pid, resource.RLIMIT_CPU)
        (tmp_path / "go").touch()
        working.result()

    assert 0.5 < limit_s < 60


def test_nothing_is_left_of_a_worker_that_was_closed(start):
    worker = start()
    pid = worker.ask("pid")
    worker.close()

    assert not is_running(pid)
