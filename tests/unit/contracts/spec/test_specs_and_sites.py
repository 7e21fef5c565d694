import unicodedata

import pytest
from pydantic import ValidationError

from slipway.tasks.contracts.base import canonical_json, read_contract, read_contract_json
from slipway.tasks.contracts.errors import InputError
from slipway.tasks.contracts.site.site import Site, quantity
from slipway.tasks.contracts.spec.question import SmokeQuestion
from slipway.tasks.contracts.spec.spec import ReleaseSpec, Source
from slipway.tasks.contracts.stored.plan import Plan, PlanRequest
from tests.fakes.releases import SPEC, spec
from tests.fakes.workspace import SITE
from tests.support.refused import refused

AS_IT_IS = {"quantization": {"format": "none"}}
VLLM = {**SPEC["engine"], "kind": "vllm", "gpu": "NVIDIA-L4"}
POLITE = {"name": "polite", "repo": "org/polite"}
RUDE = {"prompt": "?", "answer": "!", "lora": "rude"}


def refusal(**changes):
    with pytest.raises(InputError) as caught:
        read_contract(ReleaseSpec, {**SPEC, **changes}, "spec.yaml")
    return caught.value


def test_an_unknown_key_is_named_with_its_place():
    error = refusal(engine={**SPEC["engine"], "max_bach_size": 4})

    assert error.what.startswith("spec.yaml: engine.max_bach_size: ")


def test_every_violation_is_named_at_once():
    error = refusal(name="Not A Label", source={"repo": "no-slash"})

    assert "name:" in error.what
    assert "source.repo:" in error.what


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
    message = str(refusal(source=source))

    assert message.startswith("spec.yaml: source")
    assert "hf_" not in message
    assert "form" not in message.replace("format", "")


@pytest.mark.parametrize(
    ("changes", "where"),
    [
        ({"gate": {**SPEC["gate"], "smoke": [{**RUDE, "lora": TOKEN}]}}, "gate.smoke uses the adapter ("),
        ({"engine": {**SPEC["engine"], "options": {TOKEN: {}}}}, "engine.options.("),
    ],
)
def test_a_token_is_not_shown_as_part_of_a_sentence_or_of_a_place_either(changes, where):
    message = str(refusal(**changes))

    assert where in message
    assert "hf_" not in message


def test_a_long_value_leaves_room_for_the_other_violations():
    error = refusal(name="x" * 500_000, source={"repo": "no-slash"})

    assert error.what.startswith("spec.yaml: name: ")
    assert "source.repo: " in error.what
    assert len(str(error)) < 600


def test_a_wrong_document_ends_with_what_to_do_about_it():
    with refused(what="site.yaml: apiVersion: is required; ", remedy="`slipway schema --site` prints"):
        read_contract(Site, {}, "site.yaml")
    with refused(what="plan.json: ", remedy="Slipway writes this document itself: check whether it was edited"):
        read_contract(Plan, {}, "plan.json")


@pytest.mark.parametrize(
    ("changes", "what"),
    [
        (
            {"quantization": {"format": "fp8"}},
            "engine openvino cannot serve format fp8; choose one of int4, int8, none",
        ),
        ({"engine": {**SPEC["engine"], "gpu": "NVIDIA-L4"}}, "openvino runs on CPU"),
        ({"engine": {**SPEC["engine"], "max_input_tokens": 256}}, "leaves no room for an answer"),
        ({"engine": {**SPEC["engine"], "lora": [POLITE]}}, "openvino cannot serve LoRA adapters, found polite"),
        ({"engine": {**VLLM, "lora": [POLITE, POLITE]}, **AS_IT_IS}, "lora names polite twice"),
        ({"engine": {**VLLM, "lora": [{**POLITE, "name": "../up"}]}, **AS_IT_IS}, "engine.lora.0.name"),
        (
            {"engine": {**VLLM, "lora": [POLITE]}, "gate": {**SPEC["gate"], "smoke": [RUDE]}, **AS_IT_IS},
            "uses the adapter rude; engine.lora has polite",
        ),
        ({"gate": {**SPEC["gate"], "smoke": [RUDE]}}, "uses the adapter rude; engine.lora has none"),
        ({"name": "demo-candidate"}, "may not end in -candidate"),
        ({"name": "a" * 41}, "at most 40 characters"),
        ({"gate": {**SPEC["gate"], "expect": []}}, "gate.expect"),
        ({"gate": {**SPEC["gate"], "expect": [{"metric": "answer_accuracy", "at_least": 1}]}}, "needs gate.quality"),
        (
            {"gate": {**SPEC["gate"], "expect": [{"metric": "empty_rate", "at_most": 0}]}},
            "empty_rate needs gate.quality",
        ),
        ({"gate": {**SPEC["gate"], "expect": [{"metric": "error_rate"}]}}, "give exactly one of at_most"),
    ],
)
def test_a_spec_that_contradicts_itself_is_refused_in_words(changes, what):
    assert what in refusal(**changes).what


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
        ("fuzzy", "The capital of France is Paris.", "the capital of  France\nis Paris", True),
        ("fuzzy", "The capital of France is Paris.", "The capital of France is Rome.", False),
        ("fuzzy", "Snow is white.", "SNOW IS WHITE!", True),
        ("fuzzy", "The capital of France is Paris.", "<think>The capital of France is Paris.", False),
        ("fuzzy", "Jedenáct děvčátek", unicodedata.normalize("NFD", "jedenáct děvčátek"), True),
        (
            "fuzzy",
            "\u5317\u4eac\u662f\u4e2d\u56fd\u7684\u9996\u90fd",
            "\u4e0a\u6d77\u662f\u4e2d\u56fd\u7684\u57ce\u5e02",
            False,
        ),
        ("fuzzy", "60", "\uff16\uff10", True),
        ("fuzzy", "60", "", False),
    ],
)
def test_an_answer_is_accepted_as_its_question_says(match, expected, text, accepted):
    assert SmokeQuestion(prompt="?", answer=expected, match=match).accepts(text) is accepted


@pytest.mark.parametrize(
    ("least", "accepted"), [({}, False), ({"min_similarity": 0.8}, True), ({"min_similarity": 1.0}, False)]
)
def test_how_similar_an_answer_has_to_be_is_the_questions(least, accepted):
    question = SmokeQuestion(prompt="?", answer="Snow is white.", match="fuzzy", **least)

    assert question.accepts("Snow was white") is accepted


def test_an_answer_far_longer_than_the_expected_one_is_not_compared():
    question = SmokeQuestion(prompt="?", answer="ab" * 250, match="fuzzy", min_similarity=0.5)

    assert not question.accepts("ba" * 100_000)


@pytest.mark.parametrize(
    ("question", "message"),
    [
        ({"answer": "a" * 501, "match": "fuzzy"}, "at most 500"),
        ({"answer": "a", "min_similarity": 0.9}, "min_similarity is for match: fuzzy, and match is exact"),
        ({"answer": "a", "match": "fuzzy", "min_similarity": 0.4}, "greater than or equal to 0.5"),
        ({"answer": "a", "match": "fuzzy", "min_similarity": 1.1}, "less than or equal to 1"),
    ],
)
def test_a_similarity_that_means_nothing_is_refused(question, message):
    with pytest.raises(ValidationError, match=message):
        SmokeQuestion(prompt="?", **question)


@pytest.mark.parametrize("pattern", ["(a+)+$", "(a|aa)+$", "(.*)*x"])
def test_a_pattern_that_backtracks_elsewhere_is_matched_in_linear_time(pattern):
    question = SmokeQuestion(prompt="?", answer=pattern, match="regex")

    assert not question.accepts("a" * 9_000 + "!")


def test_an_answer_too_long_to_search_is_not_accepted():
    question = SmokeQuestion(prompt="?", answer="^a+$", match="regex")

    assert question.accepts("a" * 10_000)
    assert not question.accepts("a" * 10_001)


@pytest.mark.parametrize("pattern", ["(?=a)b", r"(a)\1", "[", r"(\w{1000}){1000}", "a" * 501])
def test_a_pattern_that_cannot_be_matched_in_linear_time_is_refused(pattern):
    smoke = [{"prompt": "?", "answer": pattern, "match": "regex"}]

    assert "gate.smoke.0: " in refusal(gate={**SPEC["gate"], "smoke": smoke}).what


TOO_MUCH = {
    "rollout": {"bake_s": 10**9},
    "serving": {"ready_timeout_s": 10**9},
    "engine": {**SPEC["engine"], "max_sequence_tokens": 10**9},
}


@pytest.mark.parametrize("section", sorted(TOO_MUCH))
def test_a_number_beyond_all_use_is_refused(section):
    assert "must be at most" in refusal(**{section: TOO_MUCH[section]}).what


@pytest.mark.parametrize("value", [float("inf"), float("-inf"), float("nan")])
def test_no_contract_holds_a_number_that_json_lacks(value):
    expect = [{"metric": "smoke_accuracy", "at_least": value}]

    assert "gate.expect.0.at_least: must be" in refusal(gate={**SPEC["gate"], "expect": expect}).what
    benchmark = {"request_timeout_s": value}
    assert "gate.benchmark.request_timeout_s" in refusal(gate={**SPEC["gate"], "benchmark": benchmark}).what
    assert "engine.options" in refusal(engine={**SPEC["engine"], "options": {"x": value}}).what


def test_every_number_of_a_spec_and_of_a_site_has_an_upper_bound():
    unbounded = [
        f"{title}.{name}"
        for contract in (ReleaseSpec, Site)
        for title, model in contract.model_json_schema()["$defs"].items()
        for name, field in model.get("properties", {}).items()
        for part in numbers(field)
        if not {"maximum", "exclusiveMaximum", "const", "enum"} & part.keys()
    ]

    # the options of an engine are bounded by the reader, and by JSON
    assert set(unbounded) == {"Engine.options"}


def numbers(schema):
    """The parts of a field's schema that are numbers."""
    if isinstance(schema, list):
        return [part for item in schema for part in numbers(item)]
    if not isinstance(schema, dict):
        return []
    own = [schema] if schema.get("type") in {"integer", "number"} else []
    return own + [part for item in schema.values() for part in numbers(item)]


@pytest.mark.parametrize(
    ("text", "number"),
    [("500m", 0.5), ("2", 2), ("1.5", 1.5), ("8Gi", 8 * 2**30), ("100Mi", 100 * 2**20), ("1k", 1000), ("2T", 2e12)],
)
def test_a_quantity_is_read_as_kubernetes_reads_it(text, number):
    assert quantity(text) == number


@pytest.mark.parametrize("run", ["", "a b", "a/b", "a:b"])
def test_a_run_that_cannot_name_an_object_is_refused(run):
    with refused(what="request: run: "):
        read_contract(PlanRequest, {"spec": SPEC, "run": run}, "request")


def test_a_site_without_a_prefix_has_the_bucket_as_its_root():
    assert Site.model_validate(SITE).object_store.root == "s3://bucket"


def test_a_document_that_was_cut_is_named():
    with refused(what="site.json is not valid JSON", expected="a Site"):
        read_contract_json(Site, b'{"kind": ', "site.json")


@pytest.mark.parametrize(
    "uri",
    [
        "s3://models",
        "s3://models/",
        "s3://models/a/",
        "s3://models/a//b",
        "s3://models/../b",
        "s3://models/.hidden",
        "s3:///a",
        "s3://models/a b",
        "file:///etc",
        "S3://models/a",
        "s3://models/a?x=1",
        "pvc://",
        "pvc:///a",
        "pvc://Models/a",
        "pvc://models/",
        "pvc://models/../a",
        "pvc://models/.hidden",
        "pvc://models//a",
        "pvc://-a/b",
    ],
)
def test_a_source_is_a_folder_below_a_bucket_or_a_claim(uri):
    with pytest.raises(ValidationError):
        Source.model_validate({"uri": uri})


@pytest.mark.parametrize(
    "more",
    [
        {"repo": "acme/model"},
        {"revision": "v1"},
        {"token_secret": "huggingface/HF_TOKEN"},
    ],
)
def test_a_folder_has_nothing_of_a_repository(more):
    with pytest.raises(ValidationError):
        Source.model_validate({"uri": "s3://models/acme/demo", **more})


def test_a_source_that_names_neither_is_refused():
    with pytest.raises(ValidationError):
        Source.model_validate({"revision": "v1"})


@pytest.mark.parametrize("uri", ["s3://models/acme/demo", "pvc://models/acme/demo", "pvc://team.models"])
def test_a_folder_survives_being_stored(uri):
    source = Source.model_validate({"uri": uri})

    assert Source.model_validate(source.model_dump(mode="json")) == source
    assert "uri" not in Source(repo="acme/model").model_dump()
