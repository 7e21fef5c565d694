"""Documents of a checkpoint that name code for transformers to import, and the same documents without it. Pure.

TensorRT-LLM trusts a checkpoint's code whatever it is told: its scripts do, and its LLM API does when it reads
config.json (tensorrt_llm/_torch/pyexecutor/model_loader.py at 004b733e, `trust_remote_code=True`). transformers then
takes the Python files that `auto_map` names, of another repository too, even for a model that it has a class for.
"""

from collections.abc import Mapping
from typing import Any

NAMING_DOCUMENTS = (
    "config.json",
    "tokenizer_config.json",
    "processor_config.json",
    "preprocessor_config.json",
    "video_preprocessor_config.json",
    "adapter_config.json",
)
"""Documents in which transformers 4.57 and 5.5 look for `auto_map` (src/transformers/models/auto), and an adapter's."""

OWN_CODE = frozenset({"auto_map", "auto_mapping"})
"""The second one is PEFT's, in adapter_config.json: a class, and the library to import it from."""
KERNELS = frozenset({"attn_implementation", "experts_implementation"})
"""Fields, with or without a leading underscore, whose value may be a repository of the Hub with a kernel, or an object
of such values by the part of the model."""


def without_code(value: Any) -> Any:
    """The document without fields that name code, at any depth."""
    if isinstance(value, Mapping):
        return {name: without_code(inner) for name, inner in value.items() if not _names_code(name, inner)}
    if isinstance(value, list):
        return [without_code(inner) for inner in value]
    return value


def _names_code(name: str, value: Any) -> bool:
    return name in OWN_CODE or (name.lstrip("_") in KERNELS and _has_repository(value))


def _has_repository(value: Any) -> bool:
    return any(map(_has_repository, value.values())) if isinstance(value, Mapping) else "/" in str(value)
