"""Documents of every released version are read by today's code: tests/fixtures/make_documents.py wrote them."""

import ast
import json
import tomllib

import pytest

from slipway.tasks.adapters.kube.lease_object import holder_of
from slipway.tasks.contracts.base import read_contract, read_contract_json
from slipway.tasks.contracts.documents import parse_document
from slipway.tasks.contracts.errors import InputError
from slipway.tasks.contracts.stored.channel import Channel
from slipway.tasks.contracts.stored.plan import release_id, stage_keys
from slipway.tasks.contracts.stored.release import Release
from slipway.tasks.contracts.version import VERSION
from tests.fixtures.document_kinds import DOCUMENTS
from tests.fixtures.make_documents import FOLDER, documents
from tests.support.paths import REPOSITORY

VERSIONS = sorted(path.name for path in FOLDER.iterdir())
WRITTEN_BY_PEOPLE = {"spec", "site"}
OTHERS = {"AllReduce", "Prompt", "Result", "Candidate", "ObjectStoreSite", "Preview", "Retained", "FetchedAdapters"}
"""A pod's termination message, what one process of a command tells another, lines of `slipway batch`'s own files, files in scratch, parts of a site and of a result: no version keeps them for another."""
CASES = [(version, name) for version in VERSIONS for name in DOCUMENTS if (FOLDER / version / f"{name}.json").exists()]


def fixture(version, name):
    return (FOLDER / version / f"{name}.json").read_bytes()


@pytest.mark.parametrize(("version", "name"), CASES)
def test_a_document_of_an_older_version_is_read_and_loses_nothing(version, name):
    data = fixture(version, name)

    read = read_contract_json(DOCUMENTS[name], data, name).model_dump(mode="json")

    assert subset(json.loads(data), read)


def subset(old, new):
    """Whether every value of the old document is in the new one; a new version may add fields with defaults."""
    if isinstance(old, dict) and isinstance(new, dict):
        return all(key in new and subset(value, new[key]) for key, value in old.items())
    if isinstance(old, list) and isinstance(new, list):
        return len(old) == len(new) and all(subset(*pair) for pair in zip(old, new, strict=True))
    return old == new


@pytest.mark.parametrize("version", VERSIONS)
@pytest.mark.parametrize("name", sorted(WRITTEN_BY_PEOPLE))
def test_a_file_that_a_person_wrote_for_an_older_version_is_read(version, name):
    path = FOLDER / version / f"{name}.yaml"

    read_contract(DOCUMENTS[name], parse_document(path.read_bytes(), str(path)), str(path))


@pytest.mark.parametrize("version", VERSIONS)
def test_the_keys_of_an_older_release_are_the_keys_that_today_s_code_computes(version):
    plan = read_contract_json(Release, fixture(version, "release"), "release").plan

    keys = stage_keys({stage: planned.fields for stage, planned in plan.stages.items()})

    assert keys == {stage: planned.key for stage, planned in plan.stages.items()}
    assert plan.release_id == release_id(plan.name, keys["publish"])


@pytest.mark.parametrize("version", VERSIONS)
def test_an_older_channel_can_be_changed(version):
    channel = read_contract_json(Channel, fixture(version, "channel"), "channel")

    after = channel.rolled_back(at=channel.history[0].at, run="run-9", reason="")

    assert after.live.release_id == channel.previous[0].release_id


@pytest.mark.parametrize("version", VERSIONS)
def test_the_holder_of_an_older_lease_is_known(version):
    holder = holder_of(json.loads(fixture(version, "lease")))

    assert (holder.holder, holder.dag_run) == (
        "scheduled__2026-11-22T07-30",
        "release__llama-3-8b/scheduled__2026-11-22T07:30",
    )
    assert (holder.until - holder.since).total_seconds() == 180 + 2700


def test_the_first_version_has_a_fixture_of_each_of_its_kinds():
    assert {path.stem for path in (FOLDER / "0.1.0").iterdir()} == {*documents()}


def test_every_document_that_the_code_reads_is_a_known_kind():
    read = set()
    for folder in ("slipway", "dags"):
        for path in (REPOSITORY / folder).rglob("*.py"):
            read |= set(contracts_read_in(ast.parse(path.read_text())))

    known = {contract.__name__ for contract in DOCUMENTS.values()}
    assert {"Channel", "Release", "Manifest", "Site"} <= read
    assert read - known == OTHERS


def contracts_read_in(tree):
    """Names of contracts that are passed to a reader of documents, or that validate JSON themselves."""
    for node in ast.walk(tree):
        if not isinstance(node, ast.Call):
            continue
        called = node.func
        if isinstance(called, ast.Name) and called.id in {"read_contract", "read_contract_json"}:
            first = node.args[0]
            if isinstance(first, ast.Name) and first.id not in {"model", "File", "contract"}:
                yield first.id
        if isinstance(called, ast.Attribute) and called.attr == "model_validate_json":
            yield called.value.id


def test_the_version_is_that_of_the_project():
    project = tomllib.loads((REPOSITORY / "pyproject.toml").read_text())["project"]

    assert project["version"] == VERSION


@pytest.mark.parametrize("name", sorted(DOCUMENTS.keys() - WRITTEN_BY_PEOPLE))
def test_a_document_of_a_newer_version_names_the_version_that_reads_it(name):
    document = json.loads(fixture("0.1.0", name)) | {"needs": "0.12.0", "unknown": 1}

    with pytest.raises(InputError) as caught:
        read_contract_json(DOCUMENTS[name], json.dumps(document).encode(), "s3://bucket/document.json")

    assert (caught.value.what, caught.value.found) == (
        "s3://bucket/document.json was written by a newer Slipway",
        "needs 0.12.0",
    )
    assert "Upgrade to Slipway 0.12.0" in caught.value.remedy


@pytest.mark.parametrize("needs", ["0.0.9", VERSION])
def test_a_document_that_this_version_can_read_may_name_a_version(needs):
    document = json.loads(fixture("0.1.0", "channel")) | {"needs": needs}

    read_contract_json(Channel, json.dumps(document).encode(), "channel")


@pytest.mark.parametrize("name", sorted(WRITTEN_BY_PEOPLE))
def test_a_file_of_another_api_version_is_refused_by_that_name(name):
    document = json.loads(fixture("0.1.0", name)) | {"apiVersion": "slipway/v2"}

    with pytest.raises(InputError) as caught:
        read_contract(DOCUMENTS[name], document, "file.yaml")

    assert caught.value.found == "apiVersion slipway/v2"
