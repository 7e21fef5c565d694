"""One stack for all of these tests: the one that the environment names, else an embedded one in a folder of its own.

SLIPWAY_SITE, KUBECONFIG, SLIPWAY_AIRFLOW, SLIPWAY_AIRFLOW_USER and _PASSWORD (or _TOKEN) and the AWS_* variables name
another one together. Its Hub must serve tests/fixtures/hub, and its Airflow the repository's specs.
"""

import shutil
import socket

import pytest
import yaml

from local.stack import Stack
from slipway.tasks.contracts.spec.gate import PER_LEVEL_METRICS
from tests.local.chain.own_stack import FOLDER, SPECS, named_chain, own_chain, remove_stacks_of_ended_sessions
from tests.local.chain.whole_chain import SPEC_FILE
from tests.support.paths import REPOSITORY


@pytest.fixture(scope="package")
def taken_port():
    """The port that the new stack chose for its Hub and that somebody else took before it started."""
    remove_stacks_of_ended_sessions()
    port = Stack(FOLDER).settings.ports["hub"]
    with socket.create_server(("127.0.0.1", port)):
        yield port


def _grant_time(file):
    """Widen the limits on times by far: other tests take the machine's CPUs by fits and starts."""
    spec = yaml.safe_load(file.read_text())
    for line in spec["gate"]["expect"]:
        if line["metric"] in PER_LEVEL_METRICS - {"error_rate"}:
            limit = next(name for name in line if name.startswith("at_"))
            line[limit] *= 0.01 if limit.startswith("at_least") else 100
    file.write_text(yaml.safe_dump(spec, sort_keys=False))


@pytest.fixture(scope="package")
def chain(request, tmp_path_factory):
    scratch = tmp_path_factory.mktemp("chain") / "scratch"
    if made := named_chain(scratch):
        with made.airflow:
            yield made
        return
    request.getfixturevalue("taken_port")
    shutil.copytree(REPOSITORY / "specs", SPECS)
    _grant_time(SPECS / SPEC_FILE.name)
    with own_chain(scratch, "--specs", SPECS) as made:
        yield made


@pytest.fixture
def own_spec(chain):
    """The file that the stack's Airflow makes the model's DAG of; as it was afterwards."""
    if chain.stack is None:
        pytest.skip("needs an Airflow whose specs a test may change")
    file = SPECS / SPEC_FILE.name
    before = file.read_text()
    yield file
    file.write_text(before)


@pytest.fixture(scope="package")
def promoted(chain):
    """The first revision went live through Airflow: the run as it ended."""
    return chain.release("v1")
