"""Architectures that trace and measure well, and of which the pipeline that serves must still be proven right."""

import json

import pytest

from slipway.tasks.contracts.errors import InputError
from slipway.tasks.engines.openvino import proof
from slipway.tasks.engines.openvino.build import build
from slipway.tasks.engines.openvino.quantize import quantize
from tests.fixtures.family_checkpoints import write_checkpoint
from tests.local.families.releases import TEXTS, spec_of

GRANITE_4 = {
    "num_local_experts": 4,
    "num_experts_per_tok": 2,
    "shared_intermediate_size": 64,
    "mamba_n_heads": 8,
    "mamba_d_head": 16,
    "mamba_d_state": 16,
    "mamba_expand": 2,
    "mamba_n_groups": 1,
    "mamba_chunk_size": 16,
}
LONGROPE = {
    "original_max_position_embeddings": 64,
    "rope_parameters": {
        "rope_type": "longrope",
        "rope_theta": 10000.0,
        "partial_rotary_factor": 0.75,
        "short_factor": [1.0] * 6,
        "long_factor": [2.0, 2.5, 3.0, 4.0, 6.0, 8.0],
        "original_max_position_embeddings": 64,
    },
}
LONG = TEXTS[0]["text"] * 2
"""More tokens than the positions of `LONGROPE` before its factors change."""


def built(model_type, folder, texts=(), **changes):
    """What build says of an engine, and the metrics of its checkpoint."""
    checkpoint = write_checkpoint(model_type, folder / "checkpoint", **changes)
    quantized, engine = folder / "quantized", folder / "engine"
    quantized.mkdir()
    engine.mkdir()
    metrics = quantize(checkpoint, spec_of("int8"), quantized, texts)
    return build(quantized, spec_of("int8"), engine), metrics


DENSE = {"layer_types": ["attention", "attention"], "num_local_experts": 0, "num_experts_per_tok": 0}


@pytest.mark.parametrize(
    "changes",
    [{"layer_types": ["mamba", "attention"]}, {**DENSE, "position_embedding_type": "rope"}],
    ids=["a state from step to step", "positions from step to step"],
)
def test_what_continuous_batching_forgets_is_refused(changes, tmp_path):
    with pytest.raises(InputError) as refusal:
        built("granitemoehybrid", tmp_path, **{**GRANITE_4, **changes})

    assert refusal.value.what.startswith("the engine does not answer as its model does")


def test_the_same_architecture_without_either_is_taken(tmp_path):
    description, _ = built("granitemoehybrid", tmp_path, **{**GRANITE_4, **DENSE, "position_embedding_type": None})

    assert description["proof"]["tokens"] == len(proof.PROMPTS) * proof.TOKENS


def test_rotary_factors_that_depend_on_the_length_are_traced_beside_a_measurement(tmp_path):
    _, metrics = built("phi3", tmp_path, [LONG], **LONGROPE)

    assert (
        json.loads((tmp_path / "quantized" / "config.json").read_text())["rope_parameters"]["rope_type"] == "longrope"
    )
    assert metrics["perplexity"] == pytest.approx(metrics["source_perplexity"], rel=0.05)
