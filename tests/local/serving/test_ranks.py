"""Several ranks of one engine, started by the real mpirun with roll-out's own words: the five models in real Triton.

Each rank holds the stand-in where it would hold its share of an engine; nothing is computed together.
"""

import contextlib
import os
import signal
from pathlib import Path

import pytest

from tasks.adapters.clock import SystemClock
from tasks.contracts.question_spec import SmokeQuestion
from tasks.serving.boot import SHARED_MEMORY, BootTest
from tasks.steps.assemble import serving_command
from tests.local.serving.ranks import ASKED, ENDS_WITHIN_S, ENVIRONMENT, LOADED, Ranks
from tests.local.serving.triton_server import GrpcStream
from tests.support.waiting import until

QUESTION, ANSWER = "What is the capital of France?", "The capital of France is Paris."
LONG = {"text_input": "Tell me everything.", "temperature": 8.0, "seed": 3, "max_tokens": 150}


@pytest.fixture(scope="module")
def repository(make_topology):
    return make_topology()


@pytest.fixture(scope="module")
def start_ranks(repository, tmp_path_factory):
    with contextlib.ExitStack() as running:

        def start(prefix, repository=repository):
            own = f"{prefix}-{os.getpid()}"
            return running.enter_context(Ranks(repository, tmp_path_factory.mktemp(own), own))

        yield start


@pytest.fixture(scope="module")
def two(start_ranks):
    return start_ranks("ranks-of-a-test")


def listening(pid):
    """Ports on which a process takes connections."""
    inodes = {str(fd.readlink()) for fd in Path("/proc", str(pid), "fd").iterdir() if fd.is_symlink()}
    tables = (Path("/proc", str(pid), "net", name).read_text().splitlines()[1:] for name in ("tcp", "tcp6"))
    rows = [line.split() for table in tables for line in table]
    return {int(row[1].rpartition(":")[2], 16) for row in rows if row[3] == "0A" and f"socket:[{row[9]}]" in inodes}


def test_one_rank_answers_and_the_other_listens_to_nobody(two):
    status, body = two.generate(text_input=QUESTION)

    assert (status, body["text_output"]) == (200, ANSWER)
    ranks = two.ranks()
    assert listening(ranks[0]) >= {two.http_port, two.grpc_port, two.metrics_port}
    assert not listening(ranks[1]) & {two.http_port, two.grpc_port, two.metrics_port, 8000, 8001, 8002}


def test_the_other_rank_loads_the_engine_and_nothing_else(two):
    log = two.log.read_text()

    assert log.count(LOADED) == 2
    assert log.count("successfully loaded 'demo_preprocessing'") == 1


def test_two_servers_side_by_side_share_no_memory(two, start_ranks):
    other = start_ranks("others-of-a-test")

    assert two.generate(text_input=QUESTION)[1]["text_output"] == ANSWER
    assert other.generate(text_input=QUESTION)[1]["text_output"] == ANSWER
    for server in (two, other):
        assert {name.removeprefix(server.prefix)[:6] for name in server.regions()} == {"-rank0", "-rank1"}


@pytest.fixture(scope="module")
def ended(start_ranks):
    """Two servers that end side by side, for each takes its time: one is told to, after an answer, and of the other a
    rank dies. With how each ended."""
    told, broken = start_ranks("told-to-end"), start_ranks("one-dies")
    stream = GrpcStream(told.grpc_port, **LONG)
    reasons = [piece["finish_reason"] for piece in stream]
    stream.leave()
    os.kill(broken.ranks()[1], signal.SIGKILL)
    told.tell_to_end()
    return {"told": (told, reasons[-1]), "broken": (broken, broken.process.wait(ENDS_WITHIN_S))}


def test_an_answer_is_whole_before_the_signal_and_every_rank_ends_after_it(ended):
    """With several ranks the signal takes along what is under way, so that preStop sleeps before it."""
    server, reason = ended["told"]

    assert reason == "length"
    until(lambda: not server.processes())
    assert server.regions() == []


def test_a_rank_that_dies_ends_all_of_them(ended):
    server, code = ended["broken"]

    assert code != 0
    until(lambda: not server.processes())


def test_the_boot_test_starts_both_ranks_and_leaves_none(repository, tmp_path, monkeypatch):
    for name, value in ENVIRONMENT.items():
        monkeypatch.setenv(name, value)
    started = []

    def command(place):
        started.append(place.shared_memory_prefix)
        return serving_command(ASKED, place)

    boot = BootTest(SystemClock(), tmp_path, command, ready_timeout_s=60)

    answer = boot.ask(repository, "demo", SmokeQuestion(prompt=QUESTION, answer=ANSWER))

    log = (tmp_path / "tritonserver.log").read_text()
    assert answer.text.strip() == ANSWER
    assert log.count(LOADED) == 2
    assert list(SHARED_MEMORY.glob(f"{started[0]}*")) == []
