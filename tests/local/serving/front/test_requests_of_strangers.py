"""A few hundred requests that nobody would send by mistake, against the real front and engine, beside clients in peace.

`python -m bench.serving.hostile` sends 20,000 of them.
"""

import secrets
from concurrent.futures import ThreadPoolExecutor

import pytest

from bench.serving import hostile
from bench.serving.attacks import REPORTED
from bench.serving.sending import Target
from tests.local.serving.openai_server import OpenAiServer
from tests.local.serving.triton_server import LOOPBACK

FEW = 300


@pytest.fixture(scope="module")
def own_api(server, tmp_path_factory):
    with OpenAiServer(server, tmp_path_factory.mktemp("openai")) as running:
        yield running


@pytest.fixture
def target(own_api):
    return Target(LOOPBACK, own_api.port, grpc_port=own_api.grpc_port)


@pytest.fixture
def pids(own_api, server):
    return {"triton": server.process.pid, "openai": own_api.openai.pid, "front": own_api.front.pid}


def test_what_people_reported_of_other_servers_harms_nobody(own_api, target, pids):
    processes = hostile.lasting(pids)
    with hostile.Steady(target) as steady:
        outcomes = [hostile.sent(each, target) for each in REPORTED for _ in range(each.times)]

    assert [str(each) for each in outcomes if each.complaint] == []
    assert steady.failures == []
    assert hostile.lasting(pids) == processes
    assert "Traceback" not in own_api.log.read_text()


def test_whatever_a_stranger_sends_others_are_answered(own_api, target, pids):
    seed = secrets.randbits(32)
    processes = hostile.lasting(pids)
    with hostile.Steady(target) as steady, ThreadPoolExecutor(hostile.STRANGERS) as strangers:
        report = hostile.attack(strangers, target, seed, FEW, steady)

    assert [str(each) for each in report.wrong] == [], f"seed {seed}"
    assert steady.failures == [], f"seed {seed}"
    assert hostile.lasting(pids) == processes
    assert "Traceback" not in own_api.log.read_text(), f"seed {seed}"
