"""A spec whose `engine.gpu` or `serving.shape` is a list becomes a model for each entry."""

import copy
import json

import pytest
import yaml
from jsonschema import Draft202012Validator

from slipway.tasks.contracts.errors import InputError
from slipway.tasks.contracts.spec.fleet import parse_specs, read_specs
from slipway.tasks.contracts.spec.spec import ReleaseSpec
from slipway.tasks.contracts.spec_fields import MAX_MEMBERS
from tests.fakes.releases import SPEC
from tests.support.paths import REPOSITORY
from tests.support.refused import refused

PRODUCTS = ["NVIDIA-L4", "NVIDIA-H100-80GB-HBM3"]
ON_GPUS = {
    **SPEC,
    "quantization": {"format": "int4_awq", "calibration": {"dataset": "hf://datasets/a/b@main/c.jsonl"}},
    "engine": {**SPEC["engine"], "kind": "trt-engine", "gpu": PRODUCTS},
}
ON_CPUS = {**SPEC, "serving": {"shape": ["cpu-1", "cpu-2"]}}
EXAMPLES = sorted((REPOSITORY / "specs" / "fleets").glob("*.yaml"))


def changed(document, **sections):
    return {**copy.deepcopy(document), **sections}


def read(document):
    return read_specs(document, "fleet.yaml")


def test_a_spec_without_a_list_is_one_model():
    file = read(SPEC)

    assert (file.models, file.is_fleet, file.names) == ((ReleaseSpec.model_validate(SPEC),), False, ("demo",))


def test_each_product_gets_a_model_that_is_as_if_it_had_a_spec_of_its_own():
    file = read(ON_GPUS)

    assert (file.name, file.is_fleet) == ("demo", True)
    assert file.models == tuple(
        ReleaseSpec.model_validate(changed(ON_GPUS, name=name, engine={**ON_GPUS["engine"], "gpu": product}))
        for name, product in zip(("demo-l4", "demo-h100-80gb-hbm3"), PRODUCTS, strict=True)
    )


def test_each_shape_of_servers_on_cpu_gets_a_model_by_the_same_rule():
    file = read(ON_CPUS)

    assert [(model.name, model.serving.shape) for model in file.models] == [
        ("demo-cpu-1", "cpu-1"),
        ("demo-cpu-2", "cpu-2"),
    ]
    assert file.names == ("demo", "demo-cpu-1", "demo-cpu-2")


def test_what_differs_at_one_place_is_merged_into_its_model_alone():
    engine = {**ON_GPUS["engine"], "options": {"kv_cache_fraction": 0.8}}
    expect = [{"metric": "error_rate", "at_most": 0.0}]
    change = {
        "engine": {"max_batch_size": 64, "options": {"max_num_tokens": 512}},
        "gate": {"expect": expect},
        "quantization": {"format": "fp8"},
    }

    l4, h100 = read(changed(ON_GPUS, engine=engine, fleet={PRODUCTS[1]: change})).models

    assert (l4.engine.max_batch_size, l4.quantization.format) == (8, "int4_awq")
    assert (h100.engine.max_batch_size, h100.quantization.format) == (64, "fp8")
    assert h100.engine.options == {"kv_cache_fraction": 0.8, "max_num_tokens": 512}
    assert [line.metric for line in h100.gate.expect] == ["error_rate"]
    assert [line.metric for line in l4.gate.expect] == ["smoke_accuracy"]


def test_null_takes_a_field_away_at_one_place():
    spec = changed(ON_CPUS, gate={**SPEC["gate"], "benchmark": {"requests": 7}})

    plain, own = read(changed(spec, fleet={"cpu-2": {"gate": {"benchmark": None}}})).models

    assert (plain.gate.benchmark.requests == 7, own.gate.benchmark.requests == 7) == (True, False)


def test_each_model_has_the_fleets_schedule_by_which_its_releases_are_due():
    file = read(changed(ON_CPUS, schedule="@daily"))

    assert {model.schedule for model in file.models} == {"@daily"}


def test_the_stages_before_the_shape_matters_read_the_same_fields():
    narrow, wide = read(ON_CPUS).models

    assert (narrow.source, narrow.quantization, narrow.engine) == (wide.source, wide.quantization, wide.engine)


@pytest.mark.parametrize(
    ("sections", "expected"),
    [
        ({"serving": {"shape": []}}, {"found": "0 entries", "expected": "1 to 16"}),
        ({"serving": {"shape": [f"s{n}" for n in range(MAX_MEMBERS + 1)]}}, {"found": "17 entries"}),
        ({"serving": {"shape": ["a", "a"]}}, {"found": "'a' beside 'a'"}),
        ({"serving": {"shape": ["a-b", "a.b"]}}, {"found": "'a.b' beside 'a-b'"}),
        ({"serving": {"shape": ["a", 7]}}, {"found": "7"}),
        ({"serving": {"shape": ["a", "..."]}}, {"found": "'...'"}),
        ({"serving": {"shape": ["a" * 36]}}, {"what": f"demo-{'a' * 36} is too long: found 41 characters"}),
        ({"engine": {**SPEC["engine"], "gpu": ["NVIDIA-L4"]}}, {"found": "engine.gpu and serving.shape"}),
        ({"serving": {}, "fleet": {}}, {"found": "no list of places"}),
        ({"fleet": {"cpu-3": {}}}, {"what": "names cpu-3, which is not in the list", "expected": "cpu-1, cpu-2"}),
        ({"fleet": {"cpu-1": {"source": {"revision": "v2"}}}}, {"what": "fleet.cpu-1 has source"}),
        ({"fleet": {"cpu-1": 1}}, {"what": "fleet is not valid"}),
        ({"fleet": ["cpu-1"]}, {"what": "fleet is not valid"}),
        ({"serving": {"shape": ["cpu-1", "cpu-2"], "group": "g"}}, {"what": "members of a fleet share serving.group"}),
        ({"fleet": {"cpu-2": {"engine": {"max_batch_size": 0}}}}, {"what": "the fleet's cpu-2"}),
        ({"schedule": "slipway/demo-cpu-2"}, {"what": "this model's own asset"}),
        ({"name": None}, {"what": "name"}),
        ({"name": "Demo"}, {"what": "must be lower-case letters"}),
    ],
)
def test_a_list_that_makes_no_fleet_is_refused(sections, expected):
    with refused(**expected):
        read(changed(ON_CPUS, **sections))


TOKEN = "hf_" + "aB3" * 12
LONG = f"https://ada:{'x' * 90}@host"
"""A password that is not recognised once it is cut."""


@pytest.mark.parametrize(
    "sections",
    [
        {"serving": {"shape": [TOKEN, "cpu-2"]}},
        {"serving": {"shape": [LONG, "cpu-2"]}},
        {"serving": {"shape": [TOKEN, "..."]}, "fleet": {}},
        {"serving": {"shape": [{"cpu-1": LONG}]}},
        {"fleet": {TOKEN: {}}},
        {"fleet": {LONG: {}}},
        {"fleet": {"cpu-1": {TOKEN: {}}}},
        {"fleet": {"cpu-1": {LONG: {}}}},
        {"serving": {"shape": [TOKEN]}, "fleet": {TOKEN: {"source": {}}}},
        {"serving": {"shape": [TOKEN]}, "fleet": {"cpu-1": {}}},
        {"serving": {"shape": [TOKEN]}, "engine": {**SPEC["engine"], "max_batch_size": 0}},
        {"serving": {"shape": [TOKEN]}, "name": "a-name-that-is-long"},
        {"name": TOKEN},
        {"name": LONG},
    ],
)
def test_no_part_of_a_pasted_token_is_shown(sections):
    with pytest.raises(InputError) as caught:
        read(changed(ON_CPUS, **sections))

    assert "ab3ab3" not in str(caught.value).lower()
    assert "xxx" not in str(caught.value)


def test_an_entry_is_no_longer_than_a_label():
    with refused(what="serving.shape names the members", expected="at most 63 characters"):
        read(changed(ON_CPUS, serving={"shape": ["a" * 64]}))


def test_a_violation_is_found_in_the_file_of_the_fleet():
    text = yaml.safe_dump(ON_CPUS).replace("max_batch_size: 8", "max_batch_size: 0")

    with refused(what=f"fleet.yaml:{text[: text.index('max_batch_size')].count(chr(10)) + 1}:"):
        parse_specs(text.encode(), "fleet.yaml")


PATCHED = """
fleet:
  cpu-1:
    engine:
      max_batch_size: 0
  cpu-2:
    engine: {batch_size: 8}
    gate:
      expect:
      - {metric: error_rate}
    rollout:
      keep: many
"""


def test_each_violation_is_found_where_it_was_written():
    text = yaml.safe_dump(changed(ON_CPUS, schedule="wekly"))
    numbers = {line.strip(): number for number, line in enumerate((text + PATCHED).splitlines(), 1)}

    with pytest.raises(InputError) as caught:
        parse_specs((text + PATCHED).encode(), "fleet.yaml")

    one, two = caught.value.what.split(", in the fleet's cpu-1; ")
    assert f"fleet.yaml:{numbers['max_batch_size: 0']}:7: engine.max_batch_size: must be at least 1" in one
    assert f"fleet.yaml:{numbers['engine: {batch_size: 8}']}:14: engine.batch_size: is not a field" in two
    assert f"line {numbers['- {metric: error_rate}']}:9: gate.expect.0" in two
    assert f"line {numbers['keep: many']}:7: rollout.keep: must be a whole number" in two
    assert f"line {numbers['schedule: wekly']}:1: schedule: " in one
    assert f"line {numbers['schedule: wekly']}:1: schedule: " in two
    assert two.endswith(", in the fleet's cpu-2")


def test_what_is_wrong_in_every_member_is_said_once():
    with pytest.raises(InputError) as caught:
        read(changed(ON_CPUS, engine={**SPEC["engine"], "max_batch_size": 0}))

    assert caught.value.what.endswith("(found 0), in every member of the fleet")
    assert caught.value.what.count("max_batch_size") == 1


@pytest.mark.parametrize("document", [SPEC, ON_GPUS, changed(ON_CPUS, fleet={"cpu-1": {"gate": {}}})])
def test_the_published_schema_knows_fleets(document):
    Draft202012Validator(ReleaseSpec.model_json_schema()).validate(json.loads(json.dumps(document)))


@pytest.mark.parametrize("file", EXAMPLES, ids=lambda file: file.stem)
def test_the_examples_are_fleets_of_several_models(file):
    assert len(parse_specs(file.read_bytes(), str(file)).models) > 1
