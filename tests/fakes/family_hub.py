"""A Hub that announces the models of tests/families/models.yaml. No weight is ever there."""

import hashlib
import json

from tasks.contracts.errors import InputError
from tasks.contracts.stored.plan import HubFile, Source

COMMIT = "c" * 40
TEMPLATE = "{{ messages }}"
TOKENIZER_CONFIG = "tokenizer_config.json"


class FamilyHub:
    """See tasks.adapters.hub.hub.Hub: what plan uses of it for a model."""

    def __init__(self, models):
        """`models`: records by repository."""
        self.models = models

    def resolve(self, repo, revision):
        if repo not in self.models:
            raise InputError(f"model {repo} is not recorded")
        files = [_file(name, size, name) for name, size in _weights(self.models[repo])]
        files += [_file(name, len(data), data.hex()) for name, data in self._files(repo).items()]
        return Source(repo=repo, revision=revision, commit=COMMIT, files=tuple(files))

    def read_file(self, source, path):
        return self._files(source.repo)[path]

    def _files(self, repo):
        model = self.models[repo]
        documents = {
            "config.json": model["config"],
            "generation_config.json": {},
            model.get("tokenizer", "tokenizer.json"): {},
            TOKENIZER_CONFIG: {},
        }
        texts = {}
        holder = model.get("chat_template")
        if holder is not None and holder.endswith(".jinja"):
            texts[holder] = TEMPLATE.encode()
        elif holder is not None:
            documents[holder] = {"chat_template": TEMPLATE}
        return texts | {name: json.dumps(value).encode() for name, value in documents.items()}


def _weights(model):
    """Names and sizes of the weight files; of equal size where only their sum is known."""
    sizes = model.get("shards")
    if sizes is None:
        count, total = model.get("shard_count", 1), model["weights_bytes"]
        sizes = [total // count + (number < total % count) for number in range(count)]
    return [(f"model-{i:05}-of-{len(sizes):05}.safetensors", size) for i, size in enumerate(sizes, start=1)]


def _file(path, size_bytes, content):
    digest = hashlib.sha256(f"{path} {content}".encode()).hexdigest()
    return HubFile(path=path, digest=f"sha256:{digest}", size_bytes=size_bytes)
