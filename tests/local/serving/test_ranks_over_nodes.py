"""Ranks of two nodes, started by the real mpirun with the leader's own words: the five models in real Triton.

Both nodes are this machine, under two of its addresses, and in place of ssh a script runs here what it is told to run
there: what is proven is how Open MPI takes the words, not that sshd lets anybody in.
"""

import contextlib
import os
import signal
from pathlib import Path

import pytest

from tests.local.serving.ranks import ENDS_WITHIN_S, IMAGES_LIBRARIES, LEADER, SSH_OPTIONS, WORKER, RanksOnNodes
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


@pytest.fixture(scope="module")
def server(start_nodes):
    return start_nodes("nodes-of-a-test")


def test_the_leaders_rank_answers(server):
    status, body = server.generate(text_input=QUESTION)

    assert (status, body["text_output"]) == (200, ANSWER)


def test_a_grpc_stream_reaches_the_leaders_rank(server):
    stream = GrpcStream(server.grpc_port, text_input=QUESTION)
    text = "".join(piece["text_output"] for piece in stream)
    stream.leave()

    assert text == ANSWER


def test_a_shell_on_the_worker_alone_is_asked_for(server):
    words = server.asked_of_ssh()

    assert (words.count(WORKER), words.count(LEADER)) == (1, 0)
    assert words[: len(SSH_OPTIONS)] == list(SSH_OPTIONS)


def test_each_node_starts_the_rank_that_is_its_own(server):
    assert server.starter_of(0) == (server.process.pid, "mpirun")
    assert server.starter_of(1)[1] == "orted"


def test_a_rank_on_another_node_gets_what_is_forwarded_and_nothing_else(server):
    worker = server.environment_of(1)

    assert (worker["NCCL_DEBUG"], worker["OMPI_COMM_WORLD_RANK"]) == ("WARN", "1")
    assert "AWS_SECRET_ACCESS_KEY" in server.environment_of(0)
    assert "AWS_SECRET_ACCESS_KEY" not in worker


def test_the_launcher_on_another_node_has_the_images_environment(server):
    """The leader's -x reaches ranks alone: without this orted does not find its own files, or its libraries."""
    orted = server.environment_of_process(server.starter_of(1)[0])

    assert Path(orted["OPAL_PREFIX"]).samefile(server.mpirun.parent.parent)
    assert orted["LD_LIBRARY_PATH"].split(":")[-1] == IMAGES_LIBRARIES
    assert orted["OMPI_MCA_oob_tcp_if_include"] == "lo"
    assert "AWS_SECRET_ACCESS_KEY" not in orted


@pytest.fixture(scope="module")
def ended(start_nodes):
    """Two servers that end side by side, for each takes its time: one is told to, and of the other a rank dies."""
    told, broken = start_nodes("told-to-end"), start_nodes("worker-breaks")
    os.kill(broken.ranks()[1], signal.SIGKILL)
    told.tell_to_end()
    return {"told": told, "broken": (broken, broken.process.wait(ENDS_WITHIN_S))}


def test_the_signal_ends_the_leaders_ranks_and_then_those_of_the_other_nodes(ended):
    server = ended["told"]

    until(lambda: not server.processes())
    assert server.regions() == []


def test_a_rank_that_dies_on_another_node_ends_all_of_them(ended):
    server, code = ended["broken"]

    assert code != 0
    until(lambda: not server.processes())
