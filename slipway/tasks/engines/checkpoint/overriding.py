"""config.json with `engine.overrides` in place of the model's own fields. Pure.

The file is changed rather than vLLM's hf_overrides given: that replaces the whole object, and with it rope_theta, which
then is 10000 without a word (vllm/transformers_utils/config.py, get_config, at v0.24.0).
"""

from collections.abc import Mapping
from typing import Any

from slipway.tasks.contracts.engine.overrides import Overrides, RopeParameters
from slipway.tasks.contracts.errors import InputError

Fields = Mapping[str, Any]

TEXT, ROPE, SCALING, POSITIONS = "text_config", "rope_parameters", "rope_scaling", "max_position_embeddings"
BASES = ("rope_theta", "partial_rotary_factor")
"""What version 5 of transformers keeps in rope_parameters besides the scaling."""


def overridden(config: Fields, overrides: Overrides | None, what: str) -> Fields:
    """The configuration as the runtime will read it.

    Args:
        config: config.json; of several parts, that of the language model is changed.
        overrides: those of the spec; None: the configuration stays as it is.
        what: the source, for the message.

    Raises:
        InputError: the model has no rotary positions that a scaling could replace, or fewer than are to be scaled.
    """
    if overrides is None:
        return config
    if isinstance(part := config.get(TEXT), Mapping):
        return {**config, TEXT: _scaled(part, overrides.rope_parameters, what)}
    return _scaled(config, overrides.rope_parameters, what)


def _scaled(config: Fields, rope: RopeParameters, what: str) -> Fields:
    stated = config.get(ROPE) or config.get(SCALING) or {}
    bases = {name: value for name in BASES if (value := config.get(name, stated.get(name))) is not None}
    positions, kind = config.get(POSITIONS), stated.get("rope_type", stated.get("type", "default"))
    if "rope_theta" not in bases or not isinstance(positions, int) or kind != "default":
        raise InputError(
            f"engine.overrides.rope_parameters cannot scale the positions of {what}",
            found=f"rope_theta {bases.get('rope_theta')}, rope_type {kind}, {POSITIONS} {positions}",
            expected="one rope_theta for all layers, positions that are not scaled yet, and their number",
            remedy="Remove it, or choose a checkpoint whose config.json states the scaling.",
        )
    if (original := rope.original_max_position_embeddings or positions) > positions:
        raise InputError(
            f"engine.overrides.rope_parameters scales more positions than {what} has",
            found=f"original_max_position_embeddings {original}",
            expected=f"at most {positions}, the model's {POSITIONS}",
            remedy="Correct it, or leave it out.",
        )
    return {**config, SCALING: None, **bases, **_lengthened(rope, bases, positions)}


def _lengthened(rope: RopeParameters, bases: Fields, positions: int) -> Fields:
    """The fields of a scaling. With yarn, TensorRT-LLM takes the stated positions for those after scaling."""
    scaling = {**bases, "rope_type": rope.rope_type, "factor": rope.factor}
    if rope.rope_type != "yarn":
        return {ROPE: scaling}
    original = rope.original_max_position_embeddings or positions
    scaling["original_max_position_embeddings"] = original
    return {ROPE: scaling, POSITIONS: int(original * rope.factor)}
