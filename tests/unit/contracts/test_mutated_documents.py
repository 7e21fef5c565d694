"""Mutated specs, other ones each time: each is accepted or refused in words, and by both readers alike."""

from slipway.airflow.specs import read_specs
from slipway.cli.files.documents import checked
from slipway.tasks.contracts.base import canonical_json, read_contract_json
from slipway.tasks.contracts.documents import parse_document
from slipway.tasks.contracts.errors import InputError
from slipway.tasks.contracts.redaction import MESSAGE_CHARS
from slipway.tasks.contracts.spec.spec import ReleaseSpec
from tests.fakes.mutated_documents import mutants
from tests.support.paths import REPOSITORY
from tests.support.seeds import dice

SHIPPED = [parse_document(file.read_bytes(), file.name) for file in sorted((REPOSITORY / "specs").rglob("*.yaml"))]
COUNT = 500


def test_a_mutated_spec_is_accepted_or_refused_by_validate_and_by_airflow_alike(tmp_path):
    for number, data in enumerate(mutants(SHIPPED, COUNT, dice())):
        (tmp_path / f"{number}.yaml").write_bytes(data)

    specs = read_specs(tmp_path)

    assert len(specs.good) + len(specs.broken) == COUNT
    assert len(specs.good) > COUNT // 50
    taken = {path for path, reason in specs.broken.items() if " is taken by " in reason}
    assert [path for path, reason in specs.broken.items() if "report it" in reason] == []
    assert max(map(len, specs.broken.values())) <= MESSAGE_CHARS
    assert refused_by_validate(tmp_path) == specs.broken.keys() - taken
    for spec in (model for file in specs.good.values() for model in file.models):
        assert read_contract_json(ReleaseSpec, canonical_json(spec.model_dump(mode="json")), "x") == spec


def refused_by_validate(folder):
    refused = set()
    for path in folder.glob("*.yaml"):
        try:
            checked(path)
        except InputError:
            refused.add(path)
    return refused
