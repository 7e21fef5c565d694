"""Reads a Hugging Face checkpoint on disk: its documents, and the headers of its weights."""

import json
import shutil
from pathlib import Path
from typing import Any

from slipway.tasks.contracts.errors import InputError
from slipway.tasks.contracts.stored.plan import Source
from slipway.tasks.engines.checkpoint.foreign import check_document, refusing

CONFIG = "config.json"
INDEX = "model.safetensors.index.json"
WHOLE = "model.safetensors"
TOKENIZER = "tokenizer.json"
COMPANIONS = (
    "config.json",
    "generation_config.json",
    "tokenizer*.json",
    "tokenizer.model",
    "tokenizer.model.v[0-9]",
    "special_tokens_map.json",
    "chat_template.jinja",
    "chat_template.json",
    "processor_config.json",
    "preprocessor_config.json",
    "video_preprocessor_config.json",
    "added_tokens.json",
    "vocab.json",
    "vocab.txt",
    "merges.txt",
)
"""Glob patterns of what a tokenizer and a server read besides the weights. None of them can match a pickle.

The processors' files are those of models that also see: vLLM and TensorRT-LLM's LLM API load the processor at their
start, also where only text is asked (vllm/transformers_utils/processor.py, cached_processor_from_config;
tensorrt_llm/_torch/models/modeling_gemma3vl.py, Gemma3InputProcessor; vllm-project/llm-compressor issue 1305)."""


def check_files(source: Source) -> None:
    """Refuse a repository without safetensors weights, a configuration or a tokenizer.

    Raises:
        InputError: what is missing.
    """
    names = {file.path for file in source.files}
    missing = [name for name in (CONFIG, TOKENIZER) if name not in names]
    if not any(name.endswith(".safetensors") for name in names):
        missing.append("*.safetensors")
    if missing:
        raise InputError(
            f"{source.name} has no {', no '.join(missing)}",
            expected=f"safetensors weights with {CONFIG} and {TOKENIZER}, and no pickles",
            remedy="Choose a revision that has them.",
        )


def check_layout(source: Source) -> None:
    """Refuse weights under names by which transformers, which loads them to change them, does not look for any.

    Without an index it reads model.safetensors alone (modeling_utils.py, _get_resolved_checkpoint_files); a server
    may read whatever ends with .safetensors.

    Raises:
        InputError: the first of the weights.
    """
    names = {file.path for file in source.files}
    if not names & {WHOLE, INDEX}:
        weights = sorted(name for name in names if name.endswith(".safetensors"))
        raise InputError(
            f"transformers, which has to load the weights of {source.name}, looks for them under other names",
            found=", ".join(weights[:2]),
            expected=f"{WHOLE}, or {INDEX} with the files that it names",
            remedy="Choose a revision in the layout that transformers writes (save_pretrained).",
        )


def read_config(checkpoint: Path) -> dict[str, Any]:
    """Read config.json, which must name the checkpoint's architecture.

    Raises:
        InputError: it is absent, not a JSON object, or names no architecture.
    """
    config = read_object(checkpoint / CONFIG)
    if not config.get("architectures"):
        raise InputError(
            f"{CONFIG} names no architectures",
            expected="one such as LlamaForCausalLM",
            remedy="Choose another revision.",
        )
    return config


def check_weights(checkpoint: Path) -> int:
    """Read every weight file's header, which also proves that the file is complete.

    Returns:
        Bytes of all weight files.

    Raises:
        InputError: a file is damaged, a shard of the index is missing, or there are no weights.
    """
    from safetensors import safe_open

    files = sorted(checkpoint.glob("*.safetensors"))
    index = read_object(checkpoint / INDEX) if _has_index(checkpoint) else {}
    shards = set((index.get("weight_map") or {}).values())
    missing = sorted(shards - {file.name for file in files})
    if missing or not files:
        raise InputError(
            f"the checkpoint lacks {', '.join(missing[:3]) or 'weights (*.safetensors)'}",
            found=f"{len(files)} weight files",
            remedy="Choose a revision with all its shards.",
        )
    for file in files:
        what = f"{file.name} ({file.stat().st_size} bytes) is not a readable safetensors file"
        with refusing(what, "Choose another revision."), safe_open(file, framework="np") as tensors:
            tensors.keys()
    return sum(file.stat().st_size for file in files)


def copy_companions(checkpoint: Path, out: Path) -> None:
    """Copy everything except weights that a tokenizer and a server read."""
    for file in {file for pattern in COMPANIONS for file in checkpoint.glob(pattern)}:
        shutil.copyfile(file, out / file.name)


def _has_index(checkpoint: Path) -> bool:
    return (checkpoint / INDEX).is_file()


def read_object(file: Path) -> dict[str, Any]:
    """The object in a JSON file of a checkpoint.

    Raises:
        InputError: the file does not exist or holds something else.
    """
    try:
        data = file.read_bytes()
    except FileNotFoundError as error:
        raise InputError(f"the checkpoint has no {file.name}", remedy="Choose a revision that has it.") from error
    return parse_document(file.name, data)


def parse_document(what: str, data: bytes) -> dict[str, Any]:
    """The object in a checkpoint's document. A Jinja template is the object that chat_template.json would hold.

    Args:
        what: name of the document in messages; the ending of the file's name says what it is.
        data: its bytes.

    Raises:
        InputError: it is not a JSON object or not UTF-8, or a field of it has the wrong type.
    """
    try:
        value = {"chat_template": data.decode("utf-8")} if what.endswith(".jinja") else json.loads(data)
    except (ValueError, RecursionError) as error:
        expected = "UTF-8" if what.endswith(".jinja") else "JSON"
        raise InputError(
            f"{what} is not valid {expected}", found=str(error)[:160], remedy="Choose another revision."
        ) from error
    if not isinstance(value, dict):
        raise InputError(f"{what} is not a JSON object", found=type(value).__name__, remedy="Choose another revision.")
    check_document(what, value)
    return value
