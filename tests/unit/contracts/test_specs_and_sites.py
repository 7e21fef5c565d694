import pytest

from tasks.contracts.base import canonical_json, read_contract, read_contract_json
from tasks.contracts.errors import InputError
from tasks.contracts.plan import Plan, PlanRequest
from tasks.contracts.site import Site, quantity
from tasks.contracts.spec import ReleaseSpec, SmokeQuestion
from tests.fakes.releases import SPEC, spec
from tests.fakes.workspace import SITE

AS_IT_IS = {"quantization": {"format": "none"}}
VLLM = {**SPEC["engine"], "kind": "vllm", "gpu": "NVIDIA-L4"}
POLITE = {"name": "polite", "repo": "org/polite"}
RUDE = {"prompt": "?", "answer": "!", "lora": "rude"}


def refusal(**changes):
    with pytest.raises(InputError) as refused:
        read_contract(ReleaseSpec, {**SPEC, **changes}, "spec.yaml")
    return str(refused.value)


def test_an_unknown_key_is_named_with_its_place():
    message = refusal(engine={**SPEC["engine"], "max_bach_size": 4})

    assert message.startswith("spec.yaml: engine.max_bach_size: ")


def test_every_violation_is_named_at_once():
    message = refusal(name="Not A Label", source={"repo": "no-slash"})

    assert "name:" in message
    assert "source.repo:" in message


TOKEN = "hf_abcdefghijklmnopqrstuvwxyzABCDEFGH"


@pytest.mark.parametrize(
    "source",
    [
        {"repo": "org/model", "token": TOKEN},
        {"repo": "org/model", "token": "of-another-form"},
        {"repo": "org/model", "token_secret": TOKEN},
        {"repo": "org/model", "token_secret": "of another form"},
        {"repo": TOKEN},
        TOKEN,
        {"repo": {"token": TOKEN}},
        {"repo": "org/model", "auth": {"token": TOKEN}},
    ],
)
def test_what_may_be_a_secret_is_not_shown(source):
    message = refusal(source=source)

    assert message.startswith("spec.yaml: source")
    assert "hf_" not in message
    assert "form" not in message.replace("format", "")


def test_a_wrong_document_ends_with_what_to_do_about_it():
    with pytest.raises(InputError, match=r"expected a Site\. `slipway schema --site` prints"):
        read_contract(Site, {}, "site.yaml")
    with pytest.raises(InputError, match=r"expected a Plan\. Slipway writes this document itself: was it edited"):
        read_contract(Plan, {}, "plan.json")


@pytest.mark.parametrize(
    ("changes", "words"),
    [
        ({"quantization": {"format": "fp8"}}, "engine openvino cannot serve format fp8; it serves int4, int8, none"),
        ({"engine": {**SPEC["engine"], "gpu": "NVIDIA-L4"}}, "openvino runs on CPU"),
        ({"engine": {**SPEC["engine"], "max_input_tokens": 256}}, "leaves no room for an answer"),
        ({"engine": {**SPEC["engine"], "lora": [POLITE]}}, "openvino serves no LoRA adapters, found polite"),
        ({"engine": {**VLLM, "lora": [POLITE, POLITE]}, **AS_IT_IS}, "lora names polite twice"),
        ({"engine": {**VLLM, "lora": [{**POLITE, "name": "../up"}]}, **AS_IT_IS}, "engine.lora.0.name"),
        (
            {"engine": {**VLLM, "lora": [POLITE]}, "gate": {**SPEC["gate"], "smoke": [RUDE]}, **AS_IT_IS},
            "asks the adapter rude; engine.lora has polite",
        ),
        ({"gate": {**SPEC["gate"], "smoke": [RUDE]}}, "asks the adapter rude; engine.lora has none"),
        ({"name": "demo-candidate"}, "may not end in -candidate"),
        ({"name": "a" * 41}, "at most 40 characters"),
        ({"gate": {**SPEC["gate"], "expect": []}}, "gate.expect"),
        ({"gate": {**SPEC["gate"], "expect": [{"metric": "answer_accuracy", "at_least": 1}]}}, "needs gate.quality"),
        ({"gate": {**SPEC["gate"], "expect": [{"metric": "error_rate"}]}}, "give exactly one of at_most"),
    ],
)
def test_a_spec_that_contradicts_itself_is_refused_in_words(changes, words):
    assert words in refusal(**changes)


def test_a_spec_survives_the_way_through_json():
    assert read_contract_json(ReleaseSpec, canonical_json(spec().model_dump(mode="json")), "x") == spec()


def test_canonical_json_does_not_depend_on_the_order_of_keys():
    assert canonical_json({"b": 1, "a": {"d": 2, "c": 3}}) == canonical_json({"a": {"c": 3, "d": 2}, "b": 1})


@pytest.mark.parametrize(
    ("match", "expected", "text", "accepted"),
    [
        ("exact", "Four.", " Four.\n", True),
        ("exact", "Four.", "Four", False),
        ("contains", "Paris", "It is Paris.", True),
        ("regex", r"^\d+$", "60", True),
        ("regex", r"^\d+$", "60 s", False),
    ],
)
def test_an_answer_is_accepted_as_its_question_says(match, expected, text, accepted):
    assert SmokeQuestion(prompt="?", answer=expected, match=match).accepts(text) is accepted


@pytest.mark.parametrize(
    ("text", "number"),
    [("500m", 0.5), ("2", 2), ("1.5", 1.5), ("8Gi", 8 * 2**30), ("100Mi", 100 * 2**20), ("1k", 1000), ("2T", 2e12)],
)
def test_a_quantity_is_read_as_kubernetes_reads_it(text, number):
    assert quantity(text) == number


@pytest.mark.parametrize("run", ["", "a b", "a/b", "a:b"])
def test_a_run_that_cannot_name_an_object_is_refused(run):
    with pytest.raises(InputError, match="run"):
        read_contract(PlanRequest, {"spec": SPEC, "run": run}, "request")


def test_a_site_without_a_prefix_has_the_bucket_as_its_root():
    assert Site.model_validate(SITE).object_store.root == "s3://bucket"


def test_a_document_that_was_cut_is_named():
    with pytest.raises(InputError, match=r"site\.json is no JSON.*expected a Site"):
        read_contract_json(Site, b'{"kind": ', "site.json")
