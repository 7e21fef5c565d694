"""A release of a model that lies on a volume: what pods of steps mount, and what goes live."""

import pytest

from slipway.tasks.contracts.stored.plan import Plan
from tests.local.steps.on_volume import CLAIM, FOLDER, NAME, release_of

pytestmark = pytest.mark.timeout(900)


def test_a_model_on_a_volume_goes_live_and_answers(chain, on_volume):
    assert chain.live(NAME) == on_volume.id
    assert chain.ask(NAME, NAME)
    source = Plan.model_validate(on_volume.plan).source
    assert (source.repo, source.revision) == (f"pvc://{CLAIM}/{FOLDER}", "")
    assert {file.digest.partition(":")[0] for file in source.files} == {"stat"}


def test_a_folder_that_the_volume_lacks_ends_plan_with_what_to_do(chain, on_volume):
    ended = release_of(chain, "slipway/other", run="of-another-folder").start("plan").end()

    assert ended.exit_code == 65
    assert f"pvc://{CLAIM}/slipway/other does not exist" in ended.message
