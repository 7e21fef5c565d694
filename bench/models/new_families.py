"""Which engine kind serves the families that people bring since late 2025, as plan answers it: new_families.yaml."""

import re
from collections.abc import Iterator, Mapping
from functools import cache
from pathlib import Path
from types import MappingProxyType
from typing import Any

import yaml

from bench.models import planning
from bench.models.hub import TOKENIZER_CONFIG, RecordedHub
from slipway.tasks.contracts.engine.engine_kinds import EngineKind
from slipway.tasks.contracts.errors import InputError

FILE = Path(__file__).with_name("new_families.yaml")
GPU = "NVIDIA-H200"
FORMATS: Mapping[EngineKind, str] = MappingProxyType(
    {"vllm": "none", "llmapi": "none", "trt-engine": "none", "openvino": "int8"}
)
"""The format in which each kind is tried."""
ON_CPU = {"max_input_tokens": 512, "max_sequence_tokens": 1024}
WEIGHTS_BYTES = 4 * 2**30
"""Fits on every GPU."""
DIMENSIONS: Mapping[str, Any] = {
    "hidden_size": 4096,
    "intermediate_size": 14336,
    "num_hidden_layers": 32,
    "num_attention_heads": 32,
    "num_key_value_heads": 8,
    "vocab_size": 128256,
    "max_position_embeddings": 131072,
    "torch_dtype": "bfloat16",
    "rope_theta": 500000.0,
}
"""Those of Llama 3.1 8B."""
REFUSALS = {
    "has no class for": "no class",
    "does not know the model type": "model type",
    "cannot convert this architecture": "no converter",
    "architecture cannot be exported": "not exported",
    "continuous batching loses": "loses state",
    "does not load a model of several parts": "several parts",
}
"""What stands in a cell for a refusal; a refusal that is not here fails the tests."""


@cache
def recorded() -> Mapping[str, Mapping[str, Any]]:
    """Facts by family."""
    families: Mapping[str, Mapping[str, Any]] = yaml.safe_load(FILE.read_text())
    return families


def rows() -> Iterator[tuple[str, ...]]:
    """The family, its class, and the answer of each kind."""
    for name, family in recorded().items():
        answers = [_answer(kind, name, family) for kind in FORMATS]
        yield name, family["architectures"][0], *answers


def configured() -> list[str]:
    """Families whose answer for vllm was checked against a recorded configuration too."""
    return [name for name, family in recorded().items() if "configuration" in family["checked"]]


def _answer(kind: EngineKind, name: str, family: Mapping[str, Any]) -> str:
    """`yes`, or why plan refuses the family for the kind.

    Raises:
        InputError: for a reason that has no short name.
    """
    repo = f"org/{name.replace(' ', '-')}"
    model = {"config": _config(family), "weights_bytes": WEIGHTS_BYTES, "chat_template": TOKENIZER_CONFIG}
    engine = {"kind": kind, **(ON_CPU if kind == "openvino" else {"gpu": GPU})}
    try:
        planning.plan(planning.spec_of(repo, FORMATS[kind], engine), hub=RecordedHub({repo: model}))
    except InputError as refusal:
        for pattern, short in REFUSALS.items():
            if re.search(pattern, str(refusal)):
                return short
        raise
    return "yes"


def _config(family: Mapping[str, Any]) -> dict[str, Any]:
    """A configuration of the family with dimensions that fit anywhere."""
    text = dict(DIMENSIONS)
    if family.get("hybrid"):
        period = ["linear_attention"] * 3 + ["full_attention"]
        text["layer_types"] = period * (DIMENSIONS["num_hidden_layers"] // len(period))
    if family.get("sparse"):
        text |= {"index_topk": 2048, "index_head_dim": 128, "kv_lora_rank": 512}
    names = {name: family[name] for name in ("architectures", "model_type")}
    if "part" in family:
        return {**names, "text_config": {**text, "model_type": family["part"]}}
    return {**text, **names}
