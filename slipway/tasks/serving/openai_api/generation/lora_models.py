"""LoRA adapters as models of OpenAI's API: `<model>:<adapter>`. Pure.

vLLM's own server lists adapters as models too, with their base model as `parent` (vllm/entrypoints/openai, ModelCard).
"""

import json
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from slipway.tasks.contracts.wire.prompt_model import VLLM_SAMPLING

SEPARATOR = ":"
"""Between the names of a model and its adapter. Neither may contain it: both are DNS labels."""
PARAMETER = "adapters"
"""Parameter of config.pbtxt, in model_repository_templates: a JSON object by the names of the adapters."""
LORA_NAME = "lora_name"
"""Input of Slipway's models, and a sampling parameter of Triton's vLLM backend (vllm_backend 11c4e0f,
src/utils/request.py)."""


@dataclass(frozen=True)
class ModelName:
    """A model as a request names it. `adapter` is None for the model itself."""

    base: str
    adapter: str | None = None

    @classmethod
    def read(cls, text: str) -> "ModelName":
        """The parts of `<model>` or `<model>:<adapter>`."""
        base, separator, adapter = text.partition(SEPARATOR)
        return cls(base, adapter if separator else None)

    def __str__(self) -> str:
        """As requests write it."""
        return self.base if self.adapter is None else f"{self.base}{SEPARATOR}{self.adapter}"


def loras_of(config: Mapping[str, Any]) -> tuple[str, ...]:
    """Names of the adapters of a document of GET /v2/models/<name>/config, sorted."""
    parameter = (config.get("parameters") or {}).get(PARAMETER) or {}
    return tuple(sorted(json.loads(parameter.get("string_value") or "{}")))


def with_lora(inputs: Mapping[str, Any], adapter: str | None) -> dict[str, Any]:
    """The inputs of a request that the adapter answers."""
    if adapter is None:
        return dict(inputs)
    if VLLM_SAMPLING not in inputs:
        return {**inputs, LORA_NAME: adapter}
    sampling = {**json.loads(inputs[VLLM_SAMPLING]), LORA_NAME: adapter}
    return {**inputs, VLLM_SAMPLING: json.dumps(sampling, ensure_ascii=False)}
