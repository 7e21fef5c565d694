"""Public models of every family, planned on every GPU: docs/models.md says what came of it, and each refusal was looked up."""

import pytest

from bench.models import page, planning, reasons, records
from slipway.tasks.contracts.errors import InputError
from slipway.tasks.contracts.spec.gpu_formats import ARCHITECTURES
from tests.contracts.rendering import check_rendered
from tests.support.goldens import check_golden

FAMILIES = records.families()
MODELS = records.models()
REQUIRED = {"config", "sources"}
MEMORY = "a"
"""The code of models that do not fit."""
KNOWN = REQUIRED | {"weights_bytes", "shards", "shard_count", "tokenizer", "chat_template", "unconfirmed"}


def asked(gpus):
    return ((kind, weights, gpu) for kind in planning.kinds() for weights in planning.formats_of(kind) for gpu in gpus)


def planned(kind):
    """One release by model and format, on the first GPU that takes it."""
    for repo in MODELS:
        for weights in planning.formats_of(kind):
            cells = {gpu.product: planning.cell(repo, kind, weights, gpu.product) for gpu in records.gpus()}
            product = next((product for product, cell in cells.items() if cell.gpus), None)
            if product is not None:
                yield planning.spec_on_gpus(repo, kind, weights, product, cells[product].gpus)


def test_the_page_says_what_plan_answers():
    check_golden(page.FILE, page.page())


def test_a_refusal_that_nobody_has_looked_up_is_not_taken_for_a_true_one():
    refusal = InputError("config.json has no valid number of wheels", expected="four")

    with pytest.raises(reasons.UnreviewedError, match="number of wheels"):
        reasons.code_of(refusal, "vllm", "Qwen/Qwen3-8B")


def test_a_reason_counts_for_the_kinds_and_families_that_it_was_looked_up_for():
    refusal = InputError("trt-engine cannot convert this architecture")

    assert reasons.code_of(refusal, "trt-engine", "meta-llama/Llama-4-Scout-17B-16E-Instruct")
    for kind, repo in (("llmapi", "meta-llama/Llama-4-Scout-17B-16E-Instruct"), ("trt-engine", "Qwen/Qwen3-8B")):
        with pytest.raises(reasons.UnreviewedError):
            reasons.code_of(refusal, kind, repo)


def test_each_reason_has_a_source_and_stands_for_a_refusal_that_there_is():
    assert all(reason["why"] and reason["source"] for reason in reasons.reviewed().values())
    assert set(reasons.reviewed()) == page.used()


@pytest.mark.parametrize("repo", MODELS)
def test_memory_is_the_reason_only_where_larger_gpus_would_be_taken(repo):
    gpus = records.site().gpus
    roomy = {product: facts.model_copy(update={"memory_gib": 4096}) for product, facts in gpus.items()}
    site = records.site().model_copy(update={"gpus": roomy})

    for kind, weights, product in asked(gpus):
        if planning.cell(repo, kind, weights, product).reason == MEMORY:
            planning.plan(planning.spec_on_gpus(repo, kind, weights, product), site)


@pytest.mark.parametrize("kind", planning.kinds())
def test_everything_that_is_planned_is_rendered_to_what_its_readers_take(kind, tmp_path):
    releases = list(planned(kind))

    assert releases
    check_rendered(releases, tmp_path)


@pytest.mark.parametrize("repo", MODELS)
def test_each_model_is_recorded_with_its_sources_and_the_size_of_its_weights(repo):
    model = MODELS[repo]

    assert set(model) >= REQUIRED
    assert set(model) <= KNOWN
    assert model["sources"]
    assert sum(model.get("shards", [])) or model["weights_bytes"]
    assert len(model["config"]["architectures"]) == 1


IN_16_BITS = [repo for repo, model in MODELS.items() if "quantization_config" not in model["config"]]
OF_ITS_CLASS = {"vocab_size": 262208, "num_attention_heads": 8, "num_key_value_heads": 4, "head_dim": 256}
"""What config.json of Gemma 3 leaves to transformers' Gemma3TextConfig."""


def matrices(config):
    """Parameters of all matrices of a decoder: embedding, attention and feed-forward layers of every expert."""
    text = {**config, **config.get("text_config", {})}
    gemma, routed = text["model_type"] == "gemma3_text", text["model_type"] == "llama4_text"
    text = (OF_ITS_CLASS if gemma else {}) | text
    hidden, heads = text["hidden_size"], text["num_attention_heads"]
    wide = heads + text["num_key_value_heads"]
    attention = 2 * hidden * wide * (text.get("head_dim") or hidden // heads)
    experts = text.get("num_local_experts") or text.get("num_experts") or 1
    shared = text["intermediate_size"] if routed else 0
    forward = 3 * hidden * (experts * (text.get("moe_intermediate_size") or text["intermediate_size"]) + shared)
    ends = 1 if text.get("tie_word_embeddings", gemma) else 2
    return text["num_hidden_layers"] * (attention + forward) + ends * text["vocab_size"] * hidden


@pytest.mark.parametrize("repo", IN_16_BITS)
def test_weights_are_as_large_as_the_recorded_dimensions_make_them(repo):
    model = MODELS[repo]
    sees = "vision_config" in model["config"] or "text_config" in model["config"]
    share = 2 * matrices(model["config"]) / model["weights_bytes"]

    assert (0.9 if sees else 0.999) < share <= 1


def test_every_architecture_that_formats_are_listed_for_has_a_column():
    columns = {facts.architecture for facts in records.site().gpus.values()}

    assert set(ARCHITECTURES) <= columns
