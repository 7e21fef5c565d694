"""A model that somebody brings, planned as plan does: its documents and the sizes of its files are all there is of it."""

import json

from bench.models import records
from slipway.tasks.contracts.base import read_contract
from slipway.tasks.contracts.engine.engine_kinds import ENGINE_KINDS
from slipway.tasks.contracts.fit.resolution import resolve
from slipway.tasks.contracts.spec.spec import CALIBRATED, ReleaseSpec
from slipway.tasks.contracts.stored.plan import HubFile, Source
from slipway.tasks.engines.preflight.sources import by_index, documents_of, files_of_release
from slipway.tasks.engines.registry import planner_for
from tests.fakes.releases import SPEC

GIB = 2**30
REPO = "org/model"
CALIBRATION = {"dataset": "hf://datasets/org/texts@main/a.jsonl"}
LLAMA = {
    "architectures": ["LlamaForCausalLM"],
    "model_type": "llama",
    "hidden_size": 4096,
    "intermediate_size": 14336,
    "num_hidden_layers": 32,
    "num_attention_heads": 32,
    "num_key_value_heads": 8,
    "vocab_size": 128256,
    "max_position_embeddings": 131072,
    "torch_dtype": "bfloat16",
    "rope_theta": 500000.0,
}
TOKENIZER = {"chat_template": "{% for m in messages %}{{ m.content }}{% endfor %}", "eos_token": "</s>"}


class Brought:
    """See tasks.adapters.hub.hub.Hub: what plan uses of it."""

    def __init__(self, config, *, gib=15.0, weights=None, tokenizer=None, documents=None):
        """`weights`: sizes in bytes by file, two with an index if not given; `documents`: further ones by file."""
        self.weights = weights or {f"model-0000{i}-of-00002.safetensors": int(gib * GIB / 2) for i in (1, 2)}
        files = {"config.json": config, "tokenizer.json": {}, "tokenizer_config.json": tokenizer or TOKENIZER}
        files |= {"generation_config.json": {}}
        files |= (
            {} if weights else {"model.safetensors.index.json": {"weight_map": {name: name for name in self.weights}}}
        )
        files |= documents or {}
        self.documents = {name: json.dumps(value).encode() for name, value in files.items()}

    def resolve(self, repo, revision):
        sizes = {**self.weights, **{name: len(data) for name, data in self.documents.items()}}
        files = [HubFile(path=path, digest=f"sha256:{0:064}", size_bytes=size) for path, size in sizes.items()]
        return Source(repo=repo, revision=revision, commit="c" * 40, files=tuple(files))

    def read_file(self, source, path):
        return self.documents[path]


def spec_of(kind, gpu=None, format_="none", kv_cache="none", **engine):
    limits = {"max_batch_size": 8, "max_input_tokens": 4096, "max_sequence_tokens": 8192}
    calibration = {"calibration": CALIBRATION} if format_ in CALIBRATED else {}
    document = {
        **SPEC,
        "source": {"repo": REPO},
        "quantization": {"format": format_, "kv_cache": kv_cache, **calibration},
        "engine": {"kind": kind, **({"gpu": gpu} if gpu else {}), **limits, **engine},
    }
    return read_contract(ReleaseSpec, document, "spec")


def plan(model, kind, gpu=None, format_="none", site=None, **options):
    """What plan answers: the files that it would download, and its warnings.

    Raises:
        InputError: it refuses the model.
    """
    spec = spec_of(kind, gpu, format_, **options)
    release = resolve(spec, site or records.site())
    planner = planner_for(kind)
    source = files_of_release(model.resolve(REPO, "main"))
    documents = documents_of(source, ENGINE_KINDS[kind].reads_at_plan, model)
    source = by_index(source, documents)
    planner.check(release, source, documents)
    return [file.path for file in source.files], planner.warnings(release, source, documents)
