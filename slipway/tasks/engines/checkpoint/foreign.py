"""Checks what strangers wrote: documents of a checkpoint, and errors of toolkits that read its files."""

from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from typing import Any

from slipway.tasks.contracts.errors import InputError, PipelineError

QUOTED_CHARS = 160
LARGEST = 10**9
"""More layers, heads, tokens or positions than any model has; a larger number is a mistake or an attack."""

COUNTS = (
    "num_hidden_layers",
    "hidden_size",
    "intermediate_size",
    "num_attention_heads",
    "num_key_value_heads",
    "head_dim",
    "vocab_size",
    "max_position_embeddings",
)
PER_LAYER = frozenset({"intermediate_size", "num_attention_heads", "num_key_value_heads", "head_dim"})
"""Counts that may be a list with one number for each layer: Gemma 3n, OpenELM, DeciLM."""
MOST_LAYERS = 10_000
"""More than any model has. Each layer is looked at, so a file must not be able to name a billion."""
PARTS = ("text_config", "language_config", "llm_config")
"""The language model's part of a configuration that has several."""
OBJECTS = ("quantization_config", "compression_config", "quantization", *PARTS, "rope_scaling", "rope_parameters")
TEXTS = ("model_type", "torch_dtype", "dtype", "peft_type", "quant_algo", "quant_method")
EXPECTED = {
    **dict.fromkeys(COUNTS, f"a whole number from 1 to {LARGEST}"),
    **dict.fromkeys(PER_LAYER, f"a whole number from 1 to {LARGEST}, or one for each layer"),
    **dict.fromkeys(OBJECTS, "an object"),
    **dict.fromkeys(TEXTS, "a string"),
    "architectures": "a list of names",
    "weight_map": "an object of file names by tensor name",
    "tie_word_embeddings": "true or false",
    "chat_template": "a string, or a list of named templates",
}
"""What each field that Slipway reads from a checkpoint's documents may hold; any may be absent or null."""


def check_document(what: str, document: Mapping[str, Any]) -> None:
    """Refuse a document in which a field that Slipway reads has the wrong type or size.

    Args:
        what: name of the document in messages.
        document: config.json, tokenizer_config.json and the like.

    Raises:
        InputError: the field, its value and what was expected.
    """
    for field, expected in EXPECTED.items():
        value = document.get(field)
        if value is not None and not _holds(field, value):
            raise InputError(
                f"{what}: {field} has the wrong type or size",
                found=repr(value)[:QUOTED_CHARS],
                expected=expected,
                remedy="Choose another revision.",
            )
        if isinstance(value, Mapping) and field in OBJECTS:
            check_document(f"{what}: {field}", value)


def _holds(field: str, value: Any) -> bool:
    holds: bool
    if field in PER_LAYER and isinstance(value, list):
        holds = 0 < len(value) <= MOST_LAYERS and all(_is_count(each) for each in value)
    elif field in COUNTS:
        holds = _is_count(value)
    elif field in OBJECTS:
        holds = isinstance(value, Mapping)
    elif field in TEXTS:
        holds = isinstance(value, str)
    elif field == "architectures":
        holds = isinstance(value, list) and all(isinstance(name, str) and name for name in value)
    elif field == "weight_map":
        holds = isinstance(value, Mapping) and all(isinstance(name, str) for name in value.values())
    elif field == "tie_word_embeddings":
        holds = isinstance(value, bool)
    else:
        holds = isinstance(value, str | list)
    return holds


def _is_count(value: Any) -> bool:
    return isinstance(value, int) and not isinstance(value, bool) and 1 <= value <= LARGEST


@contextmanager
def refusing(what: str, remedy: str) -> Iterator[None]:
    """Turn whatever a toolkit raises over foreign files into an InputError; a retry does not change the files.

    Toolkits raise without a contract: transformers 5.14 alone raised 11 types over damaged checkpoints, from
    AttributeError to pyo3's PanicException. MemoryError passes: its cause is the machine, not the file.

    Args:
        what: what could not be done, such as `transformers 5.14.1 cannot load the checkpoint`.
        remedy: what a person should do; a sentence.

    Raises:
        InputError: the block raised anything but one of our own errors.
    """
    try:
        yield
    except (PipelineError, MemoryError):
        raise
    except Exception as error:
        raise InputError(what, found=first_line(error), remedy=remedy) from error
    except BaseException as error:
        # a panic of Rust code is a BaseException of a type that no module exports (pyo3, PanicException)
        if type(error).__name__ != "PanicException":
            raise
        raise InputError(what, found=first_line(error), remedy=remedy) from error


def first_line(error: BaseException) -> str:
    """The first line of a toolkit's exception, short enough for a message."""
    text = str(error)[: 4 * QUOTED_CHARS].strip() or type(error).__name__
    return text.splitlines()[0][:QUOTED_CHARS].rstrip(".")
