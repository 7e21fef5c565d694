"""A Hub that announces recorded models. It holds no weights."""

import hashlib
import json
from collections.abc import Iterator, Mapping
from typing import Any

from slipway.tasks.contracts.errors import InputError
from slipway.tasks.contracts.stored.plan import HubFile, Source

COMMIT = "c" * 40
TEMPLATE = "{{ messages }}"
INDEX, TOKENIZER_CONFIG = "model.safetensors.index.json", "tokenizer_config.json"

ModelRecord = Mapping[str, Any]
"""An entry of models.yaml: `config`, and `weights_bytes` or `shards`, and optional fields that the file describes."""


class RecordedHub:
    """Implements the part of tasks.adapters.hub.hub.Hub that plan uses for a model."""

    def __init__(self, models: Mapping[str, ModelRecord]) -> None:
        """`models`: records by repository."""
        self.models = models

    def resolve(self, repo: str, revision: str) -> Source:
        """All files of a model at a made-up commit.

        Raises:
            InputError: no model of this name is recorded.
        """
        if repo not in self.models:
            raise InputError(f"model {repo} is not recorded")
        files = [_file(name, size, name) for name, size in _weights(self.models[repo])]
        files += [_file(name, len(data), data.hex()) for name, data in self._documents(repo).items()]
        return Source(repo=repo, revision=revision, commit=COMMIT, files=tuple(files))

    def read_file(self, source: Source, path: str) -> bytes:
        """One of the small files of the source."""
        return self._documents(source.repo)[path]

    def _documents(self, repo: str) -> dict[str, bytes]:
        model = self.models[repo]
        documents = {
            "config.json": model["config"],
            "generation_config.json": {},
            model.get("tokenizer", "tokenizer.json"): {},
            TOKENIZER_CONFIG: {},
            INDEX: {"weight_map": {name: name for name, _ in _weights(model)}},
        }
        texts = {}
        holder = model.get("chat_template")
        if holder is not None and holder.endswith(".jinja"):
            texts[holder] = TEMPLATE.encode()
        elif holder is not None:
            documents[holder] = {"chat_template": TEMPLATE}
        return texts | {name: json.dumps(value).encode() for name, value in documents.items()}


def weights_bytes(model: ModelRecord) -> int:
    """Bytes of all weight files."""
    return int(model["weights_bytes"] if "weights_bytes" in model else sum(model["shards"]))


def _weights(model: ModelRecord) -> Iterator[tuple[str, int]]:
    """Names and sizes of the weight files; of equal size where only their sum is known."""
    sizes = model.get("shards")
    if sizes is None:
        count, total = model.get("shard_count", 1), model["weights_bytes"]
        sizes = [total // count + (number < total % count) for number in range(count)]
    for number, size in enumerate(sizes, start=1):
        yield f"model-{number:05}-of-{len(sizes):05}.safetensors", size


def _file(path: str, size_bytes: int, content: str) -> HubFile:
    digest = hashlib.sha256(f"{path} {content}".encode()).hexdigest()
    return HubFile(path=path, digest=f"sha256:{digest}", size_bytes=size_bytes)
