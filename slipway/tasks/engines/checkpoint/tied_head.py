"""Refuses a checkpoint with a head of its own that its config.json takes for the embeddings.

transformers 5 then keeps both (modeling_utils.py, tie_weights, at 5.5.4): the model is measured and quantized as it is.
vLLM leaves the head out (`skip_prefixes` of load_weights in the classes of vllm/model_executor/models, at v0.24.0), as
TensorRT-LLM does (tensorrt_llm/_torch/models/modeling_utils.py), and answers with the embeddings.
"""

import json
import struct
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any, NamedTuple

from slipway.tasks.contracts.errors import InputError
from slipway.tasks.engines.checkpoint.config_defaults import completed

HEAD, EMBEDDINGS = "lm_head.weight", "embed_tokens.weight"
OF_LAYERS = ("mtp", ".layers.")
CHUNK_BYTES = 16 * 2**20


class Tensor(NamedTuple):
    """A tensor in a file of safetensors."""

    file: Path
    kind: tuple[str, tuple[int, ...]]
    """Its type and its shape."""
    begin: int
    end: int

    def chunks(self) -> Iterator[bytes]:
        """Its bytes."""
        with self.file.open("rb") as data:
            data.seek(self.begin)
            for at in range(self.begin, self.end, CHUNK_BYTES):
                yield data.read(min(CHUNK_BYTES, self.end - at))


def check_tied_head(checkpoint: Path, config: Mapping[str, Any]) -> None:
    """Compare the head with the embeddings where config.json says that they are the same.

    Args:
        checkpoint: a folder whose files were read before (check_weights).
        config: its config.json.

    Raises:
        InputError: they differ.
    """
    if not completed(config).get("tie_word_embeddings", config.get("tie_word_embeddings")):
        return
    found = {ending: _named(checkpoint, ending) for ending in (HEAD, EMBEDDINGS)}
    head, embeddings = found[HEAD], found[EMBEDDINGS]
    if head is None or embeddings is None or head.kind != embeddings.kind:
        return
    if any(ours != theirs for ours, theirs in zip(head.chunks(), embeddings.chunks(), strict=True)):
        raise InputError(
            f"the checkpoint has a head of its own, and servers would answer with its embeddings: {HEAD}",
            found="tie_word_embeddings true in config.json",
            expected="false, as the weights are",
            remedy="Correct config.json in a copy of the model, or choose another revision.",
        )


def _named(checkpoint: Path, ending: str) -> Tensor | None:
    """The language model's tensor of that name, with or without a prefix; layers that predict have their own."""
    for file in sorted(checkpoint.glob("*.safetensors")):
        with file.open("rb") as data:
            (length,) = struct.unpack("<Q", data.read(8))
            header = json.loads(data.read(length))
        for name, each in header.items():
            own = not any(part in name for part in OF_LAYERS)
            if own and (name == ending or name.endswith(f".{ending}")):
                begin, end = each["data_offsets"]
                kind = each["dtype"], tuple(each["shape"])
                return Tensor(file, kind, 8 + length + begin, 8 + length + end)
    return None
