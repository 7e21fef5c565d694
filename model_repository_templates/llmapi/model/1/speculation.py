"""Makes TensorRT-LLM's own configuration of the way in which tokens are guessed, from what model.yaml says of it."""

from collections.abc import Mapping
from pathlib import Path
from typing import Any

CLASSES = {
    "Eagle": "EagleDecodingConfig",
    "MTP": "MTPDecodingConfig",
    "DraftTarget": "DraftTargetDecodingConfig",
    "NGram": "NGramDecodingConfig",
}
"""Classes of tensorrt_llm.llmapi. LLM() itself takes a mapping in some versions of 1.2 only."""
DRAFT = "speculative_model_dir"
SAMPLING = "allow_advanced_sampling"
"""Without it, EAGLE 3 and MTP take the likeliest token whatever temperature a request has. Not every 1.2 has it."""


def with_speculation(arguments: Mapping[str, Any], engine: Path) -> dict[str, Any]:
    """Arguments of LLM() with `speculative_config` as an object; `engine` has the draft model's folder."""
    stated = arguments.get("speculative_config")
    if not stated:
        return dict(arguments)
    from tensorrt_llm import llmapi

    fields = dict(stated)
    chosen = getattr(llmapi, CLASSES[fields.pop("decoding_type")])
    if DRAFT in fields:
        fields[DRAFT] = str(engine / fields[DRAFT])
    if SAMPLING in chosen.model_fields:
        fields[SAMPLING] = True
    return {**arguments, "speculative_config": chosen(**fields)}
