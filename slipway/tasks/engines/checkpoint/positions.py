"""How many tokens a sequence may have, as each runtime derives it from config.json. Pure.

All of them start from the smallest of several fields. They differ in what the scaling of rotary positions adds: vLLM
multiplies with the factor of every kind of scaling but those below, and starts from the original positions for yarn;
TensorRT-LLM leaves the positions of yarn as they are; transformers, which openvino traces, computes what is asked.
"""

from collections.abc import Callable, Mapping
from typing import Any, TypeGuard

from slipway.tasks.contracts.engine.triton_releases import Flavour
from slipway.tasks.contracts.errors import InputError
from slipway.tasks.contracts.spec.spec import ReleaseSpec
from slipway.tasks.engines.checkpoint.config_defaults import completed
from slipway.tasks.engines.checkpoint.overriding import overridden

Fields = Mapping[str, Any]

NAMES = (
    *("max_position_embeddings", "n_positions", "max_seq_len", "seq_length", "model_max_length"),
    *("max_target_positions", "max_sequence_length", "max_seq_length", "seq_len"),
)
"""Fields of which the smallest counts (vllm/transformers_utils/model_arch_config_convertor.py,
derive_max_model_len_and_key, at v0.19.0 to v0.32.0)."""

NOT_SCALED_BY_VLLM = frozenset({"su", "longrope", "llama3", "default"})
NOT_SCALED_BY_TENSORRT_LLM = frozenset({*NOT_SCALED_BY_VLLM, "yarn"})
"""Kinds of scaling that are part of the stated positions (vllm/config/model.py, _get_and_verify_max_len;
tensorrt_llm/_torch/models/modeling_utils.py, infer_max_seq_len, near 1.2)."""

FROM_ORIGINAL = frozenset({"yarn", "telechat3-yarn", "deepseek_yarn"})
"""Kinds whose factor multiplies the original positions. vLLM up to 0.32.0 multiplies the stated ones of the last two,
which are scaled already, and reads behind its table of positions (vllm-project/vllm pull requests 55116, 56446)."""


def check_limits(spec: ReleaseSpec, config: Fields) -> None:
    """Refuse a sequence longer than the runtime lets the model have.

    Raises:
        InputError: engine.max_sequence_tokens is above the model's positions, or engine.overrides does not fit it.
    """
    config = overridden(config, spec.engine.overrides, spec.source.model)
    positions = positions_of(spec.engine.traits.flavour, config)
    if positions is not None and positions < spec.engine.max_sequence_tokens:
        raise InputError(
            f"engine.max_sequence_tokens is above the positions that {spec.engine.kind} derives for "
            f"{spec.source.model}",
            found=str(spec.engine.max_sequence_tokens),
            expected=f"at most {positions}",
            remedy="Lower the limit.",
        )


def positions_of(runtime: Flavour | None, config: Fields) -> int | None:
    """Most tokens of a sequence, prompt and answer together; None where config.json does not say.

    Args:
        runtime: what serves it; None: an engine that transformers traces.
        config: config.json.
    """
    text = completed(config)
    stated = [value for value in (text.get(name) for name in NAMES) if _is_count(value)]
    if not stated:
        return None
    # Command R and others state what they were trained for as model_max_length, which counts more
    trained = text.get("model_max_length")
    positions = trained if _is_count(trained) else min(stated)
    return int(DERIVED[runtime](positions, text))


def _by_vllm(positions: int, text: Fields) -> float:
    if "gemma3" in str(text.get("model_type")):  # its positions are those after scaling
        return positions
    factor: float = 1
    for parameters in _scalings(text):
        kind = _kind(parameters)
        if kind not in NOT_SCALED_BY_VLLM:
            factor = _factor(parameters, factor)
        original = parameters.get("original_max_position_embeddings")
        if kind in FROM_ORIGINAL and _is_count(original):
            positions = original
    return positions * factor


def _by_tensorrt_llm(positions: int, text: Fields) -> float:
    factors = [_factor(each, 1) for each in _scalings(text) if _kind(each) not in NOT_SCALED_BY_TENSORRT_LLM]
    return positions * max(factors, default=1)


def _by_transformers(positions: int, text: Fields) -> float:
    factors = [_factor(each, 1) for each in _scalings(text) if _kind(each) not in NOT_SCALED_BY_VLLM]
    return max(positions, _by_vllm(positions, text)) if factors else positions


DERIVED: Mapping[Flavour | None, Callable[[int, Fields], float]] = {
    "vllm": _by_vllm,
    "trtllm": _by_tensorrt_llm,
    None: _by_transformers,
}


def _scalings(text: Fields) -> list[Fields]:
    """The scaling of rotary positions, of each kind of layer where they differ."""
    stated = text.get("rope_scaling") or text.get("rope_parameters")
    if not isinstance(stated, Mapping):
        return []
    nested = [value for value in stated.values() if isinstance(value, Mapping)]
    return nested or [stated]


def _kind(parameters: Fields) -> str:
    return str(parameters.get("rope_type", parameters.get("type", "default")))


def _factor(parameters: Fields, otherwise: float) -> float:
    factor = parameters.get("factor")
    if not isinstance(factor, int | float) or isinstance(factor, bool):
        return otherwise
    return factor if 0 < factor < MOST_SCALED else otherwise


MOST_SCALED = 10**6
"""More than any factor; a larger number is a mistake."""


def _is_count(value: Any) -> TypeGuard[int]:
    return isinstance(value, int) and not isinstance(value, bool) and value > 0
