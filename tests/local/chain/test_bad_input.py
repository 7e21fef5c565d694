"""What is asked wrongly, of the real chain. What plan refuses, and how, is in tests/unit/steps/plan and tests/local/core."""

import os
import socket
import subprocess
import urllib.request

import pytest

from slipway.tasks.adapters.triton.generate_request import GenerateRequest
from slipway.tasks.adapters.triton.triton import TritonClient
from tests.local.chain.whole_chain import MODEL
from tests.support.paths import ENVIRONMENTS, REPOSITORY
from tests.support.refused import refused

pytestmark = pytest.mark.timeout(3600)


def test_a_prompt_that_is_too_long_is_refused_and_the_server_lives_on(chain, promoted):
    address = chain.address()
    with (
        TritonClient(address.host, address.ports["http"], address.ports["grpc"]) as client,
        refused(what="takes at most 128"),
    ):
        client.generate(MODEL, GenerateRequest("What is the capital of France? " * 40, 8), 30)
    assert chain.ask()


def test_a_stack_whose_port_was_taken_starts_on_another(chain, request):
    if chain.stack is None:
        pytest.skip("the stack was not started here")
    taken = request.getfixturevalue("taken_port")

    assert chain.stack.settings.ports["hub"] != taken
    with urllib.request.urlopen(f"{chain.stack.hub_endpoint}/api/models/slipway/demo-llama", timeout=60) as answer:
        assert answer.status == 200


@pytest.mark.parametrize(
    ("server", "options"),
    [
        ("local.hub", ["--fixtures", "tests/fixtures/hub"]),
        (
            "local.cluster",
            [
                "--kubeconfig",
                "{folder}/kubeconfig",
                "--images",
                "local/cluster/tests/images.yaml",
                "--place",
                "PYTHON=/usr/bin",
            ],
        ),
    ],
)
def test_a_server_that_is_told_a_taken_port_says_so(tmp_path, server, options):
    python = ENVIRONMENTS / "local" / "bin" / "python"
    options = [option.replace("{folder}", str(tmp_path)) for option in options]
    with socket.create_server(("127.0.0.1", 0)) as holder:
        port = holder.getsockname()[1]
        done = subprocess.run(
            [python, "-m", server, *options, "--state", tmp_path, "--port", str(port)],
            cwd=REPOSITORY,
            env={"PATH": os.environ["PATH"], "HOME": str(tmp_path)},
            capture_output=True,
            text=True,
            timeout=60,
            check=False,
        )

    assert done.returncode == 65
    assert f"port {port} is taken, expected a free one. Give another" in done.stderr
    assert "Traceback" not in done.stderr
