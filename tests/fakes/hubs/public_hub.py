"""A Hub that announces public models as tests/contracts/public_models.yaml records them. No weight is ever there."""

import hashlib
import json

from slipway.tasks.contracts.errors import InputError
from slipway.tasks.contracts.stored.plan import DatasetFile, HubFile, Source
from tests.support.paths import REPOSITORY
from tests.support.yaml_documents import load_yaml

MODELS = load_yaml((REPOSITORY / "tests" / "contracts" / "public_models.yaml").read_text())["models"]
COMMIT = "c" * 40


class PublicHub:
    """See tasks.adapters.hub.hub.Hub: what plan uses of it."""

    def __init__(self, *, hf_quant_config=None, lines=512, **changes):
        """`changes`: fields of config.json that every model has other values of; None removes one.

        `lines`: how many a dataset has.
        """
        self.hf_quant_config, self.lines, self.changes = hf_quant_config, lines, changes

    def resolve(self, repo, revision):
        if repo not in MODELS:
            raise InputError(f"model {repo} is not recorded")
        files = [HubFile(path=path, digest=_digest(path), size_bytes=size) for path, size in _sizes(MODELS[repo])]
        files += [_announced(name, data) for name, data in self._documents(repo).items()]
        return Source(repo=repo, revision=revision, commit=COMMIT, files=tuple(files))

    def pin_dataset(self, uri):
        repo, _, rest = uri.removeprefix("hf://datasets/").partition("@")
        return DatasetFile(repo=repo, commit=COMMIT, file=_announced(rest.partition("/")[2], uri.encode()))

    def read_dataset(self, dataset):
        return self.lines * [{"text": dataset.file.path, "prompt": "?", "answer": "!"}]

    def read_file(self, source, path):
        return self._documents(source.repo)[path]

    def _documents(self, repo):
        removed = {name for name, value in self.changes.items() if value is None}
        config = {**MODELS[repo]["config"], **self.changes}
        tokenizer = {"chat_template": "{{ messages }}"} if MODELS[repo]["chat_template"] else {}
        documents = {
            "config.json": {name: value for name, value in config.items() if name not in removed},
            "generation_config.json": {},
            "model.safetensors.index.json": {"weight_map": {name: name for name, _ in _sizes(MODELS[repo])}},
            "tokenizer.json": {},
            "tokenizer_config.json": tokenizer,
        }
        if self.hf_quant_config:
            documents["hf_quant_config.json"] = self.hf_quant_config
        return {name: json.dumps(value).encode() for name, value in documents.items()}


def weights_bytes(repo):
    return sum(size for _, size in _sizes(MODELS[repo]))


def _sizes(model):
    sizes = model.get("shards")
    if sizes is None:
        count, total = model["shard_count"], 2 * model["parameters"]
        sizes = [total // count + (number < total % count) for number in range(count)]
    return [(f"model-{i:05}-of-{len(sizes):05}.safetensors", size) for i, size in enumerate(sizes, start=1)]


def _announced(name, data):
    return HubFile(path=name, digest=_digest(repr((name, data))), size_bytes=len(data))


def _digest(what):
    return f"sha256:{hashlib.sha256(what.encode()).hexdigest()}"
