"""What the openvino model remembers of a grammar: only what became of its compilation."""

import grammar_judge
import pytest
from generation.requests.question import RefusedError
from generation.workers.worker import Budget, BusyError

from tests.support.waiting import until

CHILD = """
import os, sys, time
from pathlib import Path
from generation.workers.worker import serve

def is_first(name):
    mark = Path(sys.argv[1], name)
    is_new = not mark.exists()
    mark.touch()
    return is_new

def work(grammar):
    if grammar == "turn":
        while True:
            pass
    if grammar == "sleep" and is_first("sleep"):
        time.sleep(600)
    if grammar == "die" and is_first("die"):
        os._exit(3)
    if grammar == "fail":
        raise ValueError("no such rule")
    return 0.01

def prepare():
    if Path(sys.argv[1], "dies at its start").exists() and is_first("started"):
        os._exit(3)
    if Path(sys.argv[1], "fails at its start").exists() and is_first("started"):
        raise MemoryError
    return work

sys.exit(serve(int(sys.argv[2]), int(sys.argv[3]), prepare))
"""


@pytest.fixture
def seconds():
    return 600.0


@pytest.fixture
def judge(tmp_path, monkeypatch, seconds):
    (tmp_path / "child.py").write_text(CHILD)
    monkeypatch.setattr(grammar_judge, "__file__", str(tmp_path / "child.py"))
    monkeypatch.setattr(grammar_judge, "BUDGET", Budget(cpu_s=0.2, seconds=seconds, memory_bytes=256 << 20))
    judge = grammar_judge.GrammarJudge(tmp_path)
    yield judge
    judge.close()


def compiles(judge, grammar):
    try:
        judge.check(grammar)
    except BusyError:
        return False
    return True


@pytest.mark.parametrize(
    ("failure", "seconds"),
    [("sleep", 0.5), ("die", 600.0), ("dies at its start", 600.0), ("fails at its start", 600.0)],
)
def test_a_grammar_that_got_no_answer_is_compiled_when_it_is_asked_for_again(failure, judge, tmp_path):
    if "start" in failure:
        (tmp_path / failure).touch()
    with pytest.raises(BusyError, match=r"Ask again\.$"):
        judge.check(failure)

    assert not judge.knows(failure)
    until(lambda: compiles(judge, failure))
    assert judge.knows(failure)


@pytest.mark.parametrize(("grammar", "why"), [("turn", "0.2 s of a CPU"), ("fail", "no such rule")])
def test_a_grammar_that_cannot_be_compiled_is_refused_from_then_on(grammar, why, judge):
    until(lambda: compiles(judge, "any"))
    for _ in range(2):
        with pytest.raises(RefusedError, match=why):
            judge.check(grammar)
        assert judge.knows(grammar)
