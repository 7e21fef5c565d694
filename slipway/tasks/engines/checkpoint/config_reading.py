"""A checkpoint's config.json as the transformers of each serving runtime reads it. Pure.

Version 5 of transformers writes the settings of rotary positions as one object, `rope_parameters`. Version 4 does not
know it: it falls back to the default of `rope_theta`, 10000 for most architectures, and to no `rope_scaling`, without a
warning. Version 5 reads both forms. Compared with 4.57.3, 5.5.4 and 5.14.1 in tests/local/modelopt.
"""

from collections.abc import Mapping
from typing import Any, Literal

from slipway.tasks.contracts.errors import InputError
from slipway.tasks.contracts.site.triton_images import TritonImage
from slipway.tasks.engines.upstream.tables import PACKAGES, table_of

Generation = Literal[4, 5]
"""Major version of transformers."""

GENERATIONS: tuple[Generation, ...] = (4, 5)

BOOKKEEPING = frozenset({"quantization_config", "transformers_version", "_name_or_path", "auto_map"})
"""Fields that change with a new format or a new writer and not with the model."""

ROPE_FIELDS = frozenset({"rope_theta", "rope_scaling", "rope_parameters", "partial_rotary_factor"})
DTYPE_FIELDS = frozenset({"dtype", "torch_dtype"})
TEXT = "text_config"
"""The language model's part of a configuration that has several."""

SAME_IN_BOTH = frozenset({"default", "linear", "dynamic", "yarn", "llama3"})
"""Kinds of scaling whose parameters have the same names in `rope_scaling` and in `rope_parameters`."""

ABSENT = "absent"
"""In a comparison, a field that the configuration leaves to the architecture's default."""

Fields = Mapping[str, Any]
Difference = tuple[str, Any, Any]
"""Field, value in the source, value in what is served."""


def generations_of(image: TritonImage) -> tuple[Generation, ...]:
    """Major versions of transformers that the image's runtime allows; all of them where it has no table.

    What NVIDIA's images have installed was not checked.
    """
    table = table_of(PACKAGES[image.flavour], image.runtime)
    return tuple(table["transformers_majors"]) if table else GENERATIONS


def readable(config: Fields) -> dict[str, Any]:
    """The configuration with rotary positions under the names of both versions, where one follows from the other.

    Existing fields keep their values.
    """
    completed = dict(config)
    if isinstance(config.get(TEXT), Mapping):
        completed[TEXT] = readable(config[TEXT])
    parameters = _object(config.get("rope_parameters"))
    kind = _kind(parameters)
    if not parameters or kind not in SAME_IN_BOTH or _is_per_layer(parameters):
        return completed
    older = {name: parameters[name] for name in ("rope_theta", "partial_rotary_factor") if name in parameters}
    if kind != "default":
        older["rope_scaling"] = {"rope_type": kind, **_further(parameters)}
    return completed | {name: value for name, value in older.items() if config.get(name) is None}


def reading(config: Fields, generation: Generation) -> dict[str, Any]:
    """What a major version of transformers reads from the fields present, apart from defaults.

    Rotary positions and the type of the weights have one name each; fields of the language model's own part are
    prefixed with the part's name.
    """
    left_out = BOOKKEEPING | ROPE_FIELDS | DTYPE_FIELDS | {TEXT}
    fields = {name: value for name, value in config.items() if name not in left_out}
    dtype = config.get("dtype") or config.get("torch_dtype")
    fields |= {} if dtype is None else {"dtype": dtype}
    fields |= {f"rope.{name}": value for name, value in _rope(config, generation).items()}
    for name, value in reading(_object(config.get(TEXT)), generation).items() if config.get(TEXT) else ():
        fields[f"{TEXT}.{name}"] = value
    return fields


def differences(source: Fields, served: Fields, generation: Generation) -> list[Difference]:
    """Fields that the runtime reads differently from version 5, which read the source to quantize and measure it."""
    expected, actual = reading(source, 5), reading(served, generation)
    return [
        (name, expected.get(name, ABSENT), actual.get(name, ABSENT))
        for name in sorted(expected.keys() | actual.keys())
        if expected.get(name, ABSENT) != actual.get(name, ABSENT)
    ]


def check_readable(config: Fields, generations: tuple[Generation, ...], what: str) -> None:
    """Refuse a configuration that a serving runtime reads as another model, even with both forms of its positions.

    Args:
        config: config.json of the source.
        generations: of the runtimes that may serve it.
        what: the source, for the message.

    Raises:
        InputError: the first field that differs, and how each version reads it.
    """
    for generation in generations:
        for name, expected, actual in differences(config, readable(config), generation)[:1]:
            raise InputError(
                f"transformers {generation} of the serving runtime reads a different {name} from config.json of {what}",
                found=repr(actual),
                expected=f"{expected!r}, as version 5 reads it",
                remedy="Choose a revision with rope_theta and rope_scaling in config.json, if there is one, or an "
                "engine kind whose image has version 5: vllm of Triton 26.07 or later.",
            )


def _rope(config: Fields, generation: Generation) -> dict[str, Any]:
    scaling = _object(config.get("rope_scaling"))
    if generation == 4:  # noqa: PLR2004 - a major version
        own = {name: config[name] for name in ("rope_theta", "partial_rotary_factor") if name in config}
        return {"rope_type": _kind(scaling), **_further(scaling), **own}
    parameters = scaling or _object(config.get("rope_parameters"))
    if _is_per_layer(parameters):
        return {"rope_parameters": parameters}
    own = {
        name: parameters.get(name, config.get(name))
        for name in ("rope_theta", "partial_rotary_factor")
        if name in parameters or name in config
    }
    return {"rope_type": _kind(parameters), **_further(parameters), **own}


def _kind(parameters: Fields) -> str:
    return str(parameters.get("rope_type", parameters.get("type", "default")))


def _further(parameters: Fields) -> dict[str, Any]:
    """Parameters of a kind of scaling, without its name and what version 4 keeps outside of it."""
    named = {"rope_type", "type", "rope_theta", "partial_rotary_factor"}
    return {name: value for name, value in parameters.items() if name not in named}


def _is_per_layer(parameters: Fields) -> bool:
    """Whether each type of layer has its own object, as only version 5 has for sliding and full attention."""
    return any(isinstance(value, Mapping) for value in parameters.values())


def _object(value: Any) -> Fields:
    return value if isinstance(value, Mapping) else {}
