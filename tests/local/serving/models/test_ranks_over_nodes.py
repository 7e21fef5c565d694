"""Ranks of two nodes, started by the real mpirun with the leader's own words: the five models in real Triton.

Both nodes are this machine, under two of its addresses, and in place of ssh a script runs here what it is told to run
there: what is proven is how Open MPI takes the words, not that sshd lets anybody in.
"""

import contextlib
import os
import signal
from dataclasses import dataclass
from pathlib import Path

import pytest

from tests.local.serving.models.ranks import ENDS_WITHIN_S, IMAGES_LIBRARIES, LEADER, SSH_OPTIONS, WORKER, RanksOnNodes
from tests.local.serving.triton_server import GrpcStream
from tests.support.waiting import until

QUESTION, ANSWER = "What is the capital of France?", "The capital of France is Paris."


@pytest.fixture(scope="module")
def start_nodes(make_topology, tmp_path_factory):
    repository = make_topology()
    with contextlib.ExitStack() as running:

        def start(prefix):
            own = f"{prefix}-{os.getpid()}"
            return running.enter_context(RanksOnNodes(repository, tmp_path_factory.mktemp(own), own))

        yield start


@dataclass
class Seen:
    """Of a leader's server while its ranks lived."""

    server: RanksOnNodes
    answer: tuple
    streamed: str
    starters: dict
    environments: dict
    launcher: dict


def seen(server):
    status, body = server.generate(text_input=QUESTION)
    stream = GrpcStream(server.grpc_port, text_input=QUESTION)
    streamed = "".join(piece["text_output"] for piece in stream)
    stream.leave()
    starters = {number: server.starter_of(number) for number in (0, 1)}
    environments = {number: server.environment_of(number) for number in (0, 1)}
    launcher = server.environment_of_process(starters[1][0])
    return Seen(server, (status, body["text_output"]), streamed, starters, environments, launcher)


@pytest.fixture(scope="module")
def pair(start_nodes):
    """Two servers side by side: what was seen of the first one, which is then told to end, and the other with its exit code,
    of which a rank dies. Each takes its time to end."""
    first, broken = start_nodes("told-to-end"), start_nodes("worker-breaks")
    told = seen(first)
    os.kill(broken.ranks()[1], signal.SIGKILL)
    first.tell_to_end()
    return told, (broken, broken.process.wait(ENDS_WITHIN_S))


@pytest.fixture
def told(pair):
    return pair[0]


def test_the_leaders_rank_answers(told):
    assert told.answer == (200, ANSWER)


def test_a_grpc_stream_reaches_the_leaders_rank(told):
    assert told.streamed == ANSWER


def test_a_shell_on_the_worker_alone_is_asked_for(told):
    words = told.server.asked_of_ssh()

    assert (words.count(WORKER), words.count(LEADER)) == (1, 0)
    assert words[: len(SSH_OPTIONS)] == list(SSH_OPTIONS)


def test_each_node_starts_the_rank_that_is_its_own(told):
    assert told.starters[0] == (told.server.process.pid, "mpirun")
    assert told.starters[1][1] == "orted"


def test_a_rank_on_another_node_gets_what_is_forwarded_and_nothing_else(told):
    leader, worker = told.environments[0], told.environments[1]

    assert (worker["NCCL_DEBUG"], worker["OMPI_COMM_WORLD_RANK"]) == ("WARN", "1")
    assert "AWS_SECRET_ACCESS_KEY" in leader
    assert "AWS_SECRET_ACCESS_KEY" not in worker


def test_the_launcher_on_another_node_has_the_images_environment(told):
    """The leader's -x reaches ranks alone: without this orted does not find its own files, or its libraries."""
    assert Path(told.launcher["OPAL_PREFIX"]).samefile(told.server.mpirun.parent.parent)
    assert told.launcher["LD_LIBRARY_PATH"].split(":")[-1] == IMAGES_LIBRARIES
    assert told.launcher["OMPI_MCA_oob_tcp_if_include"] == "lo"
    assert "AWS_SECRET_ACCESS_KEY" not in told.launcher


def test_the_signal_ends_the_leaders_ranks_and_then_those_of_the_other_nodes(told):
    until(lambda: not told.server.processes())


def test_a_rank_that_dies_on_another_node_ends_all_of_them(pair):
    server, code = pair[1]

    assert code != 0
    until(lambda: not server.processes())
