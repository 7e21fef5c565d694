"""One stack for all of these tests: the one that the environment names, else an embedded one in a folder of its own.

SLIPWAY_SITE, KUBECONFIG, SLIPWAY_AIRFLOW, SLIPWAY_AIRFLOW_USER and _PASSWORD (or _TOKEN) and the AWS_* variables name
another one together. Its Hub must serve tests/fixtures/hub, and its Airflow the repository's specs.
"""

import contextlib
import shutil
import socket
from concurrent.futures import ThreadPoolExecutor, wait

import pytest
import yaml

from local.stack import Stack
from slipway.airflow.runs import run_identity
from tests.local.chain import adapted_model, fleet, hub_token
from tests.local.chain.hub_token import FirstRelease, Watcher
from tests.local.chain.openai_client import OpenAIClient
from tests.local.chain.own_stack import FOLDER, SPECS, named_chain, own_chain, remove_stacks_of_ended_sessions
from tests.local.chain.take_over import take_over
from tests.local.chain.whole_chain import MODEL, SPEC_FILE, made_light
from tests.support.paths import REPOSITORY
from tests.support.waiting import until


@pytest.fixture(scope="package")
def taken_port():
    """The port that the new stack chose for its Hub and that somebody else took before it started."""
    remove_stacks_of_ended_sessions()
    port = Stack(FOLDER).settings.ports["hub"]
    with socket.create_server(("127.0.0.1", port)):
        yield port


@pytest.fixture(scope="package")
def chain(request, tmp_path_factory):
    scratch = tmp_path_factory.mktemp("chain") / "scratch"
    if made := named_chain(scratch):
        with made.airflow:
            yield made
        return
    request.getfixturevalue("taken_port")
    shutil.copytree(REPOSITORY / "specs", SPECS)
    demo = SPECS / SPEC_FILE.name
    for file, spec in {
        demo: made_light(yaml.safe_load(demo.read_text())),
        SPECS / "fleet.yaml": fleet.document(),
        SPECS / f"{adapted_model.NAME}.yaml": adapted_model.document(),
    }.items():
        file.write_text(yaml.safe_dump(spec, sort_keys=False))
    fixtures = scratch.with_name("hub")
    adapted_model.write_fixtures(fixtures)
    node = adapted_model.stack_options(scratch.with_name("stack"))
    with own_chain(scratch, "--specs", SPECS, "--fixtures", fixtures, *node) as made:
        yield made


@pytest.fixture(scope="package")
def first_releases(chain):
    """The gated model's first release as it ended, and the fleet's by the command, which goes on.

    The demo's first release begins beside the former, and the fleet's once it has stored what they share.
    """
    if chain.stack is None:
        pytest.skip(
            "needs an image in which something stands in for vLLM, an Airflow whose specs a test may change, and looks at "
            "the stack's processes and files"
        )
    secret = {"metadata": {"name": hub_token.SECRET}, "stringData": {"token": hub_token.TOKEN}}
    chain.core.create_namespaced_secret(chain.site.kubernetes.pipeline_namespace, secret)
    run_id = f"{adapted_model.NAME}-v1"
    with contextlib.ExitStack() as going_on:
        threads = going_on.enter_context(ThreadPoolExecutor(1))
        with chain.counting_pods(run=run_identity(run_id)) as pods, Watcher(chain) as seen:
            run = chain.trigger(adapted_model.DAG, run_id)
            chain.reach(run, "download", {"success"})  # the same files as the demo's, under the same key
            chain.reach(_schedule_the_demo(chain), "build", {"success"})
            command = chain.begun("release", fleet.NAME, "--json")
            going_on.callback(command.terminate)  # whoever interrupts the tests need not wait for a release
            fleet_release = threads.submit(chain.ended, command)
            view = chain.follow(run)
        assert pods.problem is None
        yield FirstRelease(view, list(pods.steps.values()), seen), fleet_release


@pytest.fixture(scope="package")
def gated(first_releases):
    """The gated model's first release."""
    return first_releases[0]


@pytest.fixture(scope="package")
def fleet_release(first_releases):
    """The fleet's first release, as the command ends."""
    return first_releases[1]


def _schedule_the_demo(chain):
    """Airflow reads a schedule in the spec and starts the run that it asks for, which is returned."""
    file = SPECS / SPEC_FILE.name
    before = file.read_text()
    file.write_text(f'{before}\nschedule: "@once"\n')
    (run,) = until(lambda: chain.airflow.runs(f"release__{MODEL}", 1))
    file.write_text(before)
    return run


@pytest.fixture(scope="package")
def promoted(chain, request):
    """The demo's first revision went live through Airflow: the run as it ended."""
    if chain.stack is None:
        return chain.release("v1")
    wait([request.getfixturevalue("fleet_release")])  # tests compare all that is stored
    return chain.follow(chain.airflow.runs(f"release__{MODEL}", 1)[0])


@pytest.fixture(scope="package")
def openai_client(chain, promoted):
    """OpenAI's own client at the live model, kept through its promotion and rollback."""
    made = OpenAIClient(chain.address(), MODEL, chain.spec.gate.smoke[0])
    yield made
    made.close()


@pytest.fixture(scope="package")
def taken_over(chain, promoted, openai_client):
    """The next revision went live."""
    return take_over(chain, openai_client)
