"""Pods of steps that tests start themselves, as slipway/airflow makes them: on a stack without Airflow, or on what the
environment names (tests/local/chain/conftest.py).

The killed steps make the demo's stages for all: the files are named so that those which find them stored come after.
"""

import pytest

from tests.local.chain.own_stack import named_chain, own_chain, remove_stacks_of_ended_sessions
from tests.local.steps.on_volume import FOLDER, filled_claim, release_of
from tests.local.steps.step_pods import ByHand


@pytest.fixture(scope="package")
def chain(tmp_path_factory):
    scratch = tmp_path_factory.mktemp("steps") / "scratch"
    if made := named_chain(scratch):
        yield made
        return
    remove_stacks_of_ended_sessions()
    with own_chain(scratch, "--without-airflow", airflow=False) as made:
        yield made


@pytest.fixture(scope="package")
def by_hand(chain):
    made = ByHand(chain)
    yield made
    made.remove()


@pytest.fixture(scope="package")
def on_volume(chain):
    """The live release of the model on a volume."""
    with filled_claim(chain):
        made = release_of(chain, FOLDER)
        try:
            made.reach("promote")
            made.make("promote")
            yield made
        finally:
            made.remove()
