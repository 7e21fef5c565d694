"""Several ranks of one engine, started by the real mpirun with roll-out's own words: the five models in real Triton.

Each rank holds the stand-in where it would hold its share of an engine; nothing is computed together.
"""

import contextlib
import os
import signal
from dataclasses import dataclass
from pathlib import Path

import pytest

from slipway.tasks.adapters.clock import SystemClock
from slipway.tasks.contracts.spec.question import SmokeQuestion
from slipway.tasks.serving.pod.boot import SHARED_MEMORY, BootTest
from slipway.tasks.steps.assemble import serving_command
from tests.local.serving.models.ranks import ASKED, ENDS_WITHIN_S, ENVIRONMENT, LOADED, Ranks
from tests.local.serving.triton_server import GrpcStream
from tests.support.waiting import PATIENCE_S, until

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


def listening(pid):
    """Ports on which a process takes connections."""
    inodes = set()
    for fd in Path("/proc", str(pid), "fd").iterdir():
        with contextlib.suppress(FileNotFoundError):  # closed since
            inodes.add(str(fd.readlink()))
    tables = (Path("/proc", str(pid), "net", name).read_text().splitlines()[1:] for name in ("tcp", "tcp6"))
    rows = [line.split() for table in tables for line in table]
    return {int(row[1].rpartition(":")[2], 16) for row in rows if row[3] == "0A" and f"socket:[{row[9]}]" in inodes}


@dataclass
class Seen:
    """Of a server that ran beside another, while both lived and when it had ended."""

    server: Ranks
    answer: tuple
    listened: dict
    regions: set
    log: str
    end: object = None


def seen(server):
    status, body = server.generate(text_input=QUESTION)
    listened = {number: listening(pid) for number, pid in server.ranks().items()}
    regions = {name.removeprefix(server.prefix)[:6] for name in server.regions()}
    return Seen(server, (status, body["text_output"]), listened, regions, server.log.read_text())


@pytest.fixture(scope="module")
def pair(start_ranks):
    """Two servers side by side: `told` is told to end, after an answer, and a rank of `broken` dies. Each takes its time."""
    told, broken = start_ranks("told-to-end"), start_ranks("one-dies")
    found = {"told": seen(told), "broken": seen(broken)}
    stream = GrpcStream(told.grpc_port, **LONG)
    *_, found["told"].end = [piece["finish_reason"] for piece in stream]
    stream.leave()
    os.kill(broken.ranks()[1], signal.SIGKILL)
    told.tell_to_end()
    found["broken"].end = broken.process.wait(ENDS_WITHIN_S)
    return found


@pytest.fixture
def told(pair):
    return pair["told"]


def test_one_rank_answers_and_the_other_listens_to_nobody(told):
    ports = {told.server.http_port, told.server.grpc_port, told.server.metrics_port}

    assert told.answer == (200, ANSWER)
    assert told.listened[0] >= ports
    assert not told.listened[1] & {*ports, 8000, 8001, 8002}


def test_the_other_rank_loads_the_engine_and_nothing_else(told):
    assert told.log.count(LOADED) == 2
    assert told.log.count("successfully loaded 'demo_preprocessing'") == 1


def test_two_servers_side_by_side_share_no_memory(pair):
    for each in pair.values():
        assert each.answer == (200, ANSWER)
        assert each.regions == {"-rank0", "-rank1"}


def test_an_answer_is_whole_before_the_signal_and_every_rank_ends_after_it(told):
    """With several ranks the signal takes along what is under way, so that preStop sleeps before it."""
    assert told.end == "length"
    until(lambda: not told.server.processes())


def test_a_rank_that_dies_ends_all_of_them(pair):
    assert pair["broken"].end != 0
    until(lambda: not pair["broken"].server.processes())


def test_the_boot_test_starts_both_ranks_and_leaves_none(make_topology, tmp_path, monkeypatch):
    for name, value in ENVIRONMENT.items():
        monkeypatch.setenv(name, value)
    repository, started = make_topology(), []

    def command(place):
        started.append(place.shared_memory_prefix)
        return serving_command(ASKED, place)

    boot = BootTest(SystemClock(), tmp_path, command, ready_timeout_s=PATIENCE_S)

    answer = boot.ask(repository, "demo", SmokeQuestion(prompt=QUESTION, answer=ANSWER))

    assert answer.text.strip() == ANSWER
    assert len(list(repository.glob("*/rank-*"))) == 2
    assert list(SHARED_MEMORY.glob(f"{started[0]}*")) == []
