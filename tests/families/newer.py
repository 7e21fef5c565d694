"""Which engine kind serves the families that people bring since late 2025, as plan answers it: of_2026.yaml."""

import re
from functools import cache
from pathlib import Path

import yaml

from tasks.contracts.errors import InputError
from tests.fakes.brought_models import LLAMA, Brought, plan

FILE = Path(__file__).with_name("of_2026.yaml")
GPU = "NVIDIA-H200"
KINDS = {"vllm": "none", "llmapi": "none", "trt-engine": "none", "openvino": "int8"}
"""Kinds, with the format in which each is asked."""
LAYERS = LLAMA["num_hidden_layers"]
REASONS = {
    "has no class for": "no class",
    "does not know the model type": "model type",
    "cannot convert this architecture": "no converter",
    "architecture cannot be exported": "not exported",
    "continuous batching loses": "loses state",
    "does not load a model of several parts": "several parts",
}
"""What stands in a cell for a refusal; a refusal that is not here fails the tests."""
CHECKED = {
    "wheel": "vllm: wheel's registry",
    "case": "vllm: wheel's registry and a configuration in the tests",
}
OTHERS = "llmapi: NVIDIA's list; trt-engine and openvino: recorded files"


@cache
def recorded():
    return yaml.safe_load(FILE.read_text())


def config_of(family):
    """A configuration of the family with dimensions that fit anywhere."""
    own = {**LLAMA, **({"layer_types": _layer_types()} if family.get("hybrid") else {})}
    own |= {"index_topk": 2048, "index_head_dim": 128, "kv_lora_rank": 512} if family.get("sparse") else {}
    named = {name: family[name] for name in ("architectures", "model_type")}
    return {**named, "text_config": {**own, "model_type": family["part"]}} if "part" in family else {**own, **named}


def _layer_types():
    return ["full_attention" if layer % 4 == 3 else "linear_attention" for layer in range(LAYERS)]


def answer(kind, family):
    """`yes`, or why plan refuses the family for the kind.

    Raises:
        InputError: for a reason that has no short name.
    """
    gpu, limits = (None, {"max_input_tokens": 512, "max_sequence_tokens": 1024}) if kind == "openvino" else (GPU, {})
    try:
        plan(Brought(config_of(family), gib=4), kind, gpu, KINDS[kind], **limits)
    except InputError as refusal:
        for said, short in REASONS.items():
            if re.search(said, str(refusal)):
                return short
        raise
    return "yes"


def rows():
    """The family, its class, the answer for each kind, and what that was checked against."""
    for name, family in recorded().items():
        answers = [answer(kind, family) for kind in KINDS]
        yield [name, family["architectures"][0], *answers, CHECKED[family["checked"]]]
