"""What is asked wrongly, of the real chain: exit code, what was found, what to do, and nothing left behind.

What else is refused, and how, is in tests/unit/steps/plan and tests/local/core.
"""

import json
import os
import socket
import subprocess
import urllib.request

import pytest
import yaml

from slipway.tasks.adapters.triton.generate_request import GenerateRequest
from slipway.tasks.adapters.triton.triton import TritonClient
from slipway.tasks.contracts.base import read_contract
from slipway.tasks.contracts.spec.spec import ReleaseSpec
from tests.fakes.refusing_s3 import RefusingS3
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


def site(chain, tmp_path, **changes):
    """A copy of the site with sections changed."""
    document = yaml.safe_load(chain.site_file.read_text())
    for name, value in changes.items():
        document[name] = document.get(name, {}) | value
    path = tmp_path / "site.yaml"
    path.write_text(yaml.safe_dump(document))
    return path


def plan(chain, document, *arguments, **environment):
    return chain.run("plan", "--spec", json.dumps(document), "--run", "bad", *arguments, **environment)


def assert_refused(ended, *words):
    assert ended.exit_code == 65, ended.said[-2000:]
    for word in words:
        assert word in ended.message, ended.message
    assert "Traceback" not in ended.said


@pytest.mark.parametrize(
    ("changes", "words"),
    [
        ({"souce": 1}, ["souce: Extra inputs are not permitted (found 1)", "`slipway schema`", "ReleaseSpec"]),
        ({"source": {"revision": "v9"}}, ["has no revision 'v9'", "v1-readme, v2", "Correct the revision"]),
    ],
)
def test_plan_refuses_what_cannot_be_released_and_leaves_nothing(chain, changes, words):
    before = chain.standing()

    assert_refused(plan(chain, spec(**changes)), *words)

    assert chain.standing() == before


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


def test_credentials_that_the_object_store_does_not_know_are_wrong_input(chain, tmp_path):
    with RefusingS3() as store:
        asked = site(chain, tmp_path, object_store={"endpoint": store.endpoint})
        ended = plan(chain, spec(), site=asked, AWS_SECRET_ACCESS_KEY="planted-secret")

    assert_refused(ended, f"{store.endpoint} rejects the credentials", "InvalidAccessKeyId", "read, write and list")
    assert "planted-secret" not in ended.said


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
