"""What is asked wrongly, of the real chain. What else plan refuses, and how, is in tests/unit/steps/plan and tests/local/core."""

import json
import os
import socket
import subprocess
import urllib.request

import pytest

from slipway.tasks.adapters.triton.generate_request import GenerateRequest
from slipway.tasks.adapters.triton.triton import TritonClient
from slipway.tasks.contracts.base import read_contract
from slipway.tasks.contracts.spec.spec import ReleaseSpec
from tests.local.chain.whole_chain import MODEL, SPEC
from tests.local.steps.step_pods import StepPod
from tests.support.paths import ENVIRONMENTS, REPOSITORY
from tests.support.refused import refused

pytestmark = pytest.mark.timeout(1200)

GATED, TOKEN = "slipway/demo-llama-gated", "demo-reader-token"


def spec(**changes):
    """The demo's spec under another name, with sections replaced or, where a dict is given, changed."""
    changed = {name: SPEC[name] | value if isinstance(value, dict) else value for name, value in changes.items()}
    return SPEC | {"name": "bad-input"} | changed


def plan(chain, document, *arguments, **environment):
    return chain.run("plan", "--spec", json.dumps(document), "--run", "bad", *arguments, **environment)


def assert_refused(ended, *words):
    assert ended.exit_code == 65, ended.said[-2000:]
    for word in words:
        assert word in ended.message, ended.message
    assert "Traceback" not in ended.said


def test_a_gated_model_is_let_in_by_the_token_of_its_secret_and_by_no_other(chain):
    asked = spec(source={"repo": GATED, "revision": "v1", "token_secret": "bad-input-hub/token"})
    namespace, meta = chain.site.kubernetes.pipeline_namespace, {"name": "bad-input-hub"}
    wrong = plan(chain, asked, HF_TOKEN="hf_somebody_else")
    chain.core.create_namespaced_secret(namespace, {"metadata": meta, "stringData": {"token": TOKEN}})
    try:
        arguments = ["--spec", json.dumps(asked), "--run", "let-in"]
        pod = StepPod(chain, read_contract(ReleaseSpec, asked, "spec"), "plan", arguments)
        ended = pod.end()
        pod.gone()
    finally:
        chain.core.delete_namespaced_secret("bad-input-hub", namespace)

    assert_refused(wrong, "is gated and the token of source.token_secret has no access", "Accept its conditions")
    assert ended.exit_code == 0, ended.said
    assert TOKEN not in ended.said


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
