"""References of the Hub's own have slashes, and the client's own rule says where they end."""

import pytest
from huggingface_hub.hf_file_system import SPECIAL_REFS_REVISION_REGEX

from slipway.tasks.adapters.hub.hub import DATASET


@pytest.mark.parametrize("revision", ["refs/convert/parquet", "refs/pr/12", "main", "refs%2Fpr%2F3"])
def test_a_reference_ends_where_the_client_says(revision):
    parts = DATASET.match(f"hf://datasets/org/texts@{revision}/data/a.jsonl")
    special = SPECIAL_REFS_REVISION_REGEX.match(f"{revision}/data/a.jsonl")

    assert (parts["repo"], parts["revision"], parts["file"]) == ("org/texts", revision, "data/a.jsonl")
    assert (special.group() if special else revision) == parts["revision"]
