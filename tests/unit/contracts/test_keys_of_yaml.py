"""Two files with the same data have the same keys, however they are written."""

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from slipway.tasks.contracts.base import read_contract
from slipway.tasks.contracts.documents import parse_document
from slipway.tasks.contracts.spec.spec import ReleaseSpec
from slipway.tasks.contracts.stored.plan import DatasetFile, Datasets, HubFile, Source, Tools, stage_fields, stage_keys
from slipway.tasks.document_files import read_document
from tests.fakes.releases import SPEC
from tests.fakes.yaml_writers import written
from tests.support.paths import REPOSITORY

SPECS = REPOSITORY / "specs"
MANY_OPTIONS = {
    **SPEC,
    "engine": {
        **SPEC["engine"],
        "options": {"threads": 2, "a": 0.5, "b": True, "c": "yes", "d": "1", "e": "1.0", "f": "# no comment"},
        "chat_template_kwargs": {"enable_thinking": False, "language": "français", "depth": 3},
    },
}
DOCUMENTS = {"options": MANY_OPTIONS, **{file.stem: read_document(file) for file in sorted(SPECS.glob("*.yaml"))}}


def keys(document):
    """The keys of a spec whose model has one file."""
    spec = read_contract(ReleaseSpec, document, "a spec")
    file = HubFile(path="model.safetensors", digest=f"sha256:{'a' * 64}", size_bytes=1)
    texts = DatasetFile(repo="org/texts", commit="c" * 40, file=file)
    datasets = Datasets(calibration=texts if spec.quantization.calibration else None)
    source = Source(repo=spec.source.repo, revision=spec.source.revision, commit="b" * 40, files=(file,))
    return stage_keys(stage_fields(spec, source, datasets, Tools(producers={}, templates={})))


@pytest.mark.parametrize("name", DOCUMENTS)
@settings(max_examples=20)
@given(seed=st.integers(0, 2**32))
def test_comments_order_and_style_of_a_file_change_no_key(name, seed):
    document = parse_document(written(DOCUMENTS[name], seed).encode(), f"{name}.yaml")

    assert document == DOCUMENTS[name]
    assert keys(document) == keys(DOCUMENTS[name])


@pytest.mark.parametrize(("option", "other"), [("c", True), ("d", 1), ("a", "0.5")])
def test_a_value_of_another_type_that_reads_alike_changes_a_key(option, other):
    engine = MANY_OPTIONS["engine"]
    changed = {**MANY_OPTIONS, "engine": {**engine, "options": {**engine["options"], option: other}}}

    assert keys(changed) != keys(MANY_OPTIONS)
