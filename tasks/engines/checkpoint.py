"""A Hugging Face checkpoint on disk: what it says about itself, and whether its weights can be read at all."""

import json
import shutil
from pathlib import Path
from typing import Any

from tasks.contracts.errors import InputError
from tasks.contracts.plan import Source
from tasks.contracts.spec import ReleaseSpec

CONFIG = "config.json"
INDEX = "model.safetensors.index.json"
TOKENIZER = "tokenizer.json"
COMPANIONS = (
    "config.json",
    "generation_config.json",
    "tokenizer*",
    "special_tokens_map.json",
    "chat_template.*",
    "added_tokens.json",
    "vocab.*",
    "merges.txt",
)
"""Glob patterns of what a tokenizer and a server read beside the weights."""


def check_files(source: Source) -> None:
    """Refuse a repository that holds no safetensors checkpoint with its configuration and tokenizer.

    Raises:
        InputError: what is missing.
    """
    names = {file.path for file in source.files}
    missing = [name for name in (CONFIG, TOKENIZER) if name not in names]
    if not any(name.endswith(".safetensors") for name in names):
        missing.append("*.safetensors")
    if missing:
        raise InputError(
            f"{source.repo}@{source.revision} has no {', no '.join(missing)}; a release needs safetensors weights with "
            f"{CONFIG} and {TOKENIZER}, and takes no pickles. Choose a revision that has them."
        )


def read_config(checkpoint: Path) -> dict[str, Any]:
    """config.json of a checkpoint that names its architecture.

    Raises:
        InputError: it is absent, no JSON object, or names no architecture.
    """
    config = read_object(checkpoint / CONFIG)
    if not config.get("architectures"):
        raise InputError(f"{CONFIG} names no architectures; expected one such as LlamaForCausalLM. Mend the revision.")
    return config


def check_limits(config: dict[str, Any], spec: ReleaseSpec) -> None:
    """Refuse a sequence longer than the model has positions.

    Raises:
        InputError: engine.max_sequence_tokens is above max_position_embeddings.
    """
    positions = config.get("max_position_embeddings")
    if positions and spec.engine.max_sequence_tokens > positions:
        raise InputError(
            f"engine.max_sequence_tokens is {spec.engine.max_sequence_tokens}, {spec.source.repo} has positions for "
            f"{positions} (max_position_embeddings). Lower the limit."
        )


def check_weights(checkpoint: Path) -> int:
    """Read every weight file's header, which also proves that the file is as long as it says.

    Returns:
        Bytes of all weight files.

    Raises:
        InputError: a file is damaged, a shard of the index is missing, or there is none.
    """
    from safetensors import SafetensorError, safe_open

    files = sorted(checkpoint.glob("*.safetensors"))
    shards = set(read_object(checkpoint / INDEX).get("weight_map", {}).values()) if _has_index(checkpoint) else set()
    missing = sorted(shards - {file.name for file in files})
    if missing or not files:
        raise InputError(
            f"weights are missing: {', '.join(missing[:3]) or 'no *.safetensors at all'}; found {len(files)} files. "
            "Choose a revision with all its shards."
        )
    for file in files:
        try:
            with safe_open(file, framework="np") as tensors:
                tensors.keys()
        except (SafetensorError, OSError) as error:
            raise InputError(
                f"{file.name} ({file.stat().st_size} bytes) is no readable safetensors file: {str(error)[:160]}. "
                "Choose another revision, or mend this one."
            ) from error
    return sum(file.stat().st_size for file in files)


def copy_companions(checkpoint: Path, out: Path) -> None:
    """Copy everything but weights that a tokenizer and a server read."""
    for file in {file for pattern in COMPANIONS for file in checkpoint.glob(pattern)}:
        shutil.copyfile(file, out / file.name)


def _has_index(checkpoint: Path) -> bool:
    return (checkpoint / INDEX).is_file()


def read_object(file: Path) -> dict[str, Any]:
    """The object in a JSON file of a checkpoint.

    Raises:
        InputError: there is no such file, or it holds something else.
    """
    try:
        value = json.loads(file.read_bytes())
    except FileNotFoundError as error:
        raise InputError(f"the checkpoint has no {file.name}. Choose a revision that has it.") from error
    except ValueError as error:
        raise InputError(f"{file.name} is no JSON: {error}. Mend the revision.") from error
    if not isinstance(value, dict):
        raise InputError(f"{file.name} holds a {type(value).__name__}, expected an object. Mend the revision.")
    return value
