"""How many processes of OpenAI's API a pod has, and how the front shares requests out among them."""

import json

import pytest

from slipway.tasks.serving.rendered import front
from tests.support.paths import REPOSITORY

TEMPLATES = REPOSITORY / "k8s_manifests" / "serving"


@pytest.mark.parametrize(
    ("cpu", "count"), [("250m", 1), ("1", 1), ("7", 1), ("7900m", 1), ("8", 2), ("8000m", 2), ("12.5", 3), ("192", 4)]
)
def test_there_is_a_process_for_every_four_cpus_and_at_most_four(cpu, count):
    sockets = front.openai_sockets(cpu)

    assert (len(sockets), len(set(sockets)), sockets[0]) == (count, count, front.OPENAI_SOCKET)


@pytest.mark.parametrize("cpu", ["1", "8"])
def test_the_front_sends_requests_to_each_of_them(cpu):
    sockets = front.openai_sockets(cpu)
    document = json.loads(front.config("127.0.0.1", 60, TEMPLATES, sockets=sockets))
    (cluster,) = [each for each in document["static_resources"]["clusters"] if each["name"] == "openai"]
    endpoints = cluster["load_assignment"]["endpoints"][0]["lb_endpoints"]

    assert [each["endpoint"]["address"]["pipe"]["path"] for each in endpoints] == list(sockets)
    assert cluster.get("lb_policy") == ("LEAST_REQUEST" if len(sockets) > 1 else None)
