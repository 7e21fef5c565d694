"""docs/triton-advisories.md: every image that Slipway serves on, against the bulletins that its release is too old for."""

import re
from pathlib import Path

from slipway.tasks.contracts.engine.engine_kinds import ENGINE_KINDS
from slipway.tasks.contracts.site.triton_images import STATED_IMAGES

PAGE = (Path(__file__).parents[4] / "docs" / "triton-advisories.md").read_text()
BULLETINS = dict(re.findall(r"^\| (20\d\d/\d+) \| .* \| (\d\d\.\d\d) \|$", PAGE, re.MULTILINE))
STATED = dict(re.findall(r"^\| (\d\d\.\d\d) \| (.+) \|$", PAGE, re.MULTILINE))
SERVED = sorted({release for traits in ENGINE_KINDS.values() for release in traits.triton_releases})


def test_each_release_that_serves_states_the_bulletins_it_is_too_old_for():
    expected = {
        release: ", ".join(sorted(name for name, fixed in BULLETINS.items() if fixed > release)) or "none"
        for release in SERVED
    }

    assert expected == STATED
    assert {release for _, release in STATED_IMAGES} >= set(SERVED)


def test_the_newest_release_that_serves_lacks_no_published_fix():
    assert max(BULLETINS.values()) <= SERVED[-1]
