"""Mixtures of experts: how many experts a model has, and whether the ranks can share them out as the spec asks."""

from collections.abc import Mapping
from typing import Any

from slipway.tasks.contracts.errors import InputError
from slipway.tasks.contracts.spec.spec import ReleaseSpec
from slipway.tasks.engines.checkpoint.config_defaults import completed
from slipway.tasks.engines.checkpoint.files import CONFIG

NAMES = ("num_experts", "moe_num_experts", "n_routed_experts", "num_local_experts")
"""What config.json calls the number of experts of a layer (vllm-project/vllm
vllm/transformers_utils/model_arch_config_convertor.py, get_num_experts, at v0.19.0 and v0.24.0)."""


def experts_of(config: Mapping[str, Any]) -> int:
    """How many experts a layer has, shared ones not counted; 0 for a model without."""
    text = completed(config)
    counts = (text.get(name) for name in NAMES)
    return max((count for count in counts if isinstance(count, int)), default=0)


def check_experts(spec: ReleaseSpec, config: Mapping[str, Any]) -> None:
    """Refuse to share out experts that the model does not have, or that ranks would lose.

    Raises:
        InputError: the model has no experts, or their number cannot be divided.
    """
    engine, experts = spec.engine, experts_of(config)
    fields = {"expert_parallel": engine.expert_parallel > 1, "attention_dp": engine.attention_dp}
    asked = [name for name, is_set in fields.items() if is_set]
    if asked and experts <= 1:
        raise InputError(
            f"engine.{asked[0]} is for mixtures of experts, and {spec.source.model} is none",
            found=f"none of {', '.join(NAMES)} above 1 in {CONFIG}",
            remedy=f"Remove {' and '.join(asked)}.",
        )
    if experts % engine.expert_parallel and not engine.traits.uneven_experts:
        # TensorRT-LLM gives each rank experts // moe_ep_size, so the rest would be on none (tensorrt_llm/mapping.py
        # at 05ebebb2, ep_experts)
        fit = [n for n in range(1, engine.tensor_parallel + 1) if not (engine.tensor_parallel % n or experts % n)]
        raise InputError(
            f"engine.expert_parallel {engine.expert_parallel} does not divide the experts of {spec.source.model}",
            found=f"{experts} experts",
            remedy=f"Choose one of {', '.join(map(str, fit))}.",
        )


def attention_ranks(spec: ReleaseSpec) -> int:
    """Over how many ranks a layer's attention and its cache are split, and the last layer.

    With attention_dp TensorRT-LLM splits neither attention nor the last layer (tensorrt_llm/_torch/models/
    modeling_qwen3_moe.py at 03441af1).
    """
    return 1 if spec.engine.attention_dp else spec.engine.tensor_parallel


def replicated_parameters(spec: ReleaseSpec, attention: int) -> int:
    """Parameters of attention that attention_dp puts on every rank beyond a rank's share of them.

    Args:
        spec: the release's spec.
        attention: parameters of attention in the layers of one pipeline stage.
    """
    tensor = spec.engine.tensor_parallel
    return attention * (tensor - 1) // tensor if spec.engine.attention_dp else 0
