"""`slipway doctor --image-contract` shows how each recorded contract is confirmed."""

import re
from pathlib import Path

CLI = Path(__file__).parents[2] / "cli" / "doctor.py"
ELSEWHERE = {"public_models.yaml", "leaderworkerset.json"}
"""Of the Hub, and of a cluster's controller: not of an image."""


def test_each_contract_of_an_image_has_its_command():
    files = {file.name for file in Path(__file__).parent.iterdir() if file.suffix in {".yaml", ".json"}}

    named = set(re.findall(r'"([a-z_]+\.(?:yaml|json))"', CLI.read_text()))

    assert files - ELSEWHERE == named
