"""A Hub token is in one Secret and in the pods that ask the Hub, and nowhere else that a release leaves or shows."""

import base64
import json
import stat
from contextlib import suppress

import pytest

from tests.local.chain.adapted_model import NAME
from tests.local.chain.hub_token import TOKEN
from tests.support.walking import below

pytestmark = pytest.mark.timeout(3600)

STORED = "cluster/objects.sqlite"
"""The embedded cluster's objects, which hold the Secret itself."""


def written(token):
    """The token as it is, and as base64 has it at each of the three places where it may begin."""
    encoded = {base64.b64encode(b"x" * place + token.encode()) for place in range(3)}
    return [token.encode(), *(text.rstrip(b"=")[4:-4] for text in encoded)]


def has_it(data):
    return any(text in data for text in written(TOKEN))


def holds_it(file):
    """Whether the token is in the file; one that ended with its pod holds nothing."""
    with suppress(FileNotFoundError):
        return has_it(file.read_bytes())
    return False


def test_a_gated_model_is_released_with_the_token_of_its_secret(chain, gated):
    view = gated.view

    assert view.run.state == "success", chain.said(view)
    assert view.results["download"].outcome == "done"


def test_only_the_pods_that_ask_the_hub_have_the_token_and_only_in_their_environment(gated):
    seen = gated.seen

    assert seen.environments
    assert seen.environments <= {"plan", "download"}
    assert seen.arguments == set()
    assert seen.objects == set()
    assert seen.looks > 20


def test_no_object_in_the_store_holds_it(gated, chain):
    uris = chain.keys(f"s3://{chain.site.object_store.bucket}")

    assert any(NAME in uri for uri in uris)
    assert [uri for uri in uris if has_it(chain.bytes(uri))] == []


def test_no_log_database_or_file_of_the_stack_holds_it_but_the_clusters_own_objects(gated, chain):
    files = [path for path, status in below(chain.stack.folder) if stat.S_ISREG(status.st_mode)]
    found = {file.relative_to(chain.stack.folder).as_posix() for file in files if holds_it(file)}

    assert {name for name in found if not name.startswith(STORED)} == set()
    assert any("airflow" in file.parts and file.suffix == ".log" for file in files)


def test_no_answer_of_airflow_holds_it(gated):
    told = json.dumps({name: result.model_dump(mode="json") for name, result in gated.view.results.items()})

    assert TOKEN not in told
