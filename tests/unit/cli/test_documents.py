"""`slipway validate` and `slipway schema`, which need no Airflow."""

import json

import pytest
import yaml

from slipway.cli.files.documents import DRAFT
from tests.fakes.releases import SPEC

SITE = {
    "apiVersion": "slipway/v1",
    "kind": "Site",
    "name": "here",
    "object_store": {"bucket": "models"},
    "images": {"tasks": "t", "serving": {"openvino": "s"}},
    "shapes": {"small": {"cpu": "1", "memory": "1Gi", "scratch": "1Gi"}},
}


@pytest.fixture
def write(tmp_path):
    def write(name, document):
        path = tmp_path / name
        path.write_text(document if isinstance(document, str) else yaml.safe_dump(document))
        return str(path)

    return write


def test_a_right_spec_and_a_right_site_are_valid(slipway, write):
    code, printed = slipway("validate", write("demo.yaml", SPEC), write("site.yaml", SITE))

    assert code == 0
    assert "release demo is valid" in printed
    assert "site here is valid" in printed


def test_every_violation_is_named_with_what_was_found(slipway, write):
    wrong = {**SPEC, "name": "Demo_1", "colour": "red", "engine": {**SPEC["engine"], "max_batch_size": 0}}

    code, printed = slipway("validate", write("demo.yaml", wrong))

    assert code == 65
    assert "name: " in printed
    assert "found 'Demo_1'" in printed
    assert "engine.max_batch_size: " in printed
    assert "colour: " in printed
    assert "`slipway schema`" in printed


def test_one_wrong_file_does_not_hide_the_others(slipway, write):
    code, printed = slipway("validate", write("a.yaml", {}), write("b.yaml", SPEC), write("c.yaml", "[1, 2]"))

    assert code == 65
    assert "b.yaml: release demo is valid" in printed
    assert "a.yaml: " in printed
    assert "c.yaml:1:1: the document: must be a mapping" in printed


@pytest.mark.parametrize(("kind", "found"), [({"kind": "Relase"}, "'Relase'"), ({"kind": [1]}, "[1]"), ({}, "none")])
def test_a_kind_that_does_not_exist_is_answered_with_the_kinds(slipway, write, kind, found):
    document = {name: value for name, value in SITE.items() if name != "kind"} | kind

    code, printed = slipway("validate", write("site.yaml", document))

    assert code == 65
    assert f"kind: found {found}, expected Release or Site" in printed
    assert "shapes" not in printed


def test_a_syntax_error_is_named_with_line_and_column(slipway, write):
    code, printed = slipway("validate", write("demo.yaml", "name: demo\nsource: {repo: a/b\nkind: Release\n"))

    assert code == 65
    assert "demo.yaml:3:" in printed


def test_a_file_that_is_absent_is_a_wrong_input(slipway):
    code, printed = slipway("validate", "nowhere.yaml")

    assert code == 65
    assert "nowhere.yaml cannot be read: No such file or directory" in printed


@pytest.mark.parametrize(
    ("arguments", "title", "needed"), [((), "ReleaseSpec", "gate"), (("--site",), "Site", "shapes")]
)
def test_the_schema_is_json_schema_of_the_contract(slipway, arguments, title, needed):
    code, printed = slipway("schema", *arguments)

    schema = json.loads(printed)
    assert (code, schema["$schema"], schema["title"]) == (0, DRAFT, title)
    assert needed in schema["required"]
    assert schema["additionalProperties"] is False
