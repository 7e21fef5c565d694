"""An engine made by the steps' own code from the fixture model, and one server for each shape of repository over it."""

import contextlib
import fcntl
import json
import os
import re
import shutil
import subprocess
import sys
from hashlib import sha256

import numpy as np
import pytest

from slipway.tasks.engines.trtllm.vocabulary import VOCABULARY
from slipway.tasks.serving.rendered.repository import render
from tests.local.serving.triton_server import LAUNCHER, TritonServer, has_package
from tests.support.paths import HUB, REPOSITORY

CHECKPOINT = HUB / "slipway" / "demo-llama" / "v1"
MAKER = REPOSITORY / "tests/local/serving/export_engine.py"
LOCK = REPOSITORY / "requirements/tasks.lock"
ENGINE_SOURCES = [*(REPOSITORY / "slipway/tasks/engines").rglob("*.py"), MAKER, LOCK]
CACHE = REPOSITORY / ".slipway" / "cache" / "test-engines"
TEMPLATES = REPOSITORY / "model_repository_templates"
BLOCK_TOKENS = 32
NO_TOKEN = 100_000
STAND_INS = REPOSITORY / "tests" / "local" / "serving" / "models" / "stand_in"
LORAS = {"polite": "lora/polite", "terse": "lora/terse"}
REFUSES = "{% if mood != 'fine' %}{{ raise_exception('the mood is ' ~ mood) }}{% endif %}"
SHARED = {"gpus": [], "kv_cache_fraction": 0.9, "kv_cache": "auto", "tensor_parallel": 1, "pipeline_parallel": 1}
SHARED |= {"prefix_caching": True, "loras": {}, "host_cache_bytes": 0}


@pytest.fixture(scope="session")
def engine():
    """Folder of the built engine; made once per fixture model, toolkits and engine code, then kept."""
    digest = sha256()
    for file in sorted([*CHECKPOINT.iterdir(), *ENGINE_SOURCES]):
        digest.update(str(file.relative_to(REPOSITORY)).encode() + sha256(file.read_bytes()).digest())
    folder = CACHE / digest.hexdigest()[:16]
    CACHE.mkdir(parents=True, exist_ok=True)
    with CACHE.with_name("test-engines.lock").open("w") as lock:  # other parts of the tests serve it too
        fcntl.flock(lock, fcntl.LOCK_EX)
        if not folder.exists():
            subprocess.run(
                [sys.executable, "-m", "tests.local.serving.export_engine", CHECKPOINT, folder],
                cwd=REPOSITORY,
                env={"PATH": os.environ["PATH"], "PYTHONPATH": str(REPOSITORY), "HF_HUB_OFFLINE": "1"},
                check=True,
                timeout=600,
            )
    return folder


@pytest.fixture(scope="session")
def make_repository(engine, tmp_path_factory):
    """Render the repository as assemble does, with the engine in its place."""

    def make(**changed):
        values = {**json.loads((engine / "template_values.json").read_text()), **changed}
        repository = tmp_path_factory.mktemp("repository")
        render(TEMPLATES, "openvino", values, repository)
        shutil.copytree(engine, repository / values["name"] / "1" / values["engine_folder"])
        return repository

    return make


def without_end(engine):
    """Let the model's own configuration and its tokenizer name no token that ends an answer."""
    config, tokenizer = engine / "generation_config.json", engine / "openvino_tokenizer.xml"
    settings = engine / "tokenizer_config.json"
    config.write_text(json.dumps({**json.loads(config.read_text()), "eos_token_id": NO_TOKEN}))
    settings.write_text(json.dumps({**json.loads(settings.read_text()), "eos_token": "no token"}))
    named, count = re.subn(r'<eos_token_id value="\d+"', f'<eos_token_id value="{NO_TOKEN}"', tokenizer.read_text())
    assert count == 1
    tokenizer.write_text(named)


@pytest.fixture(scope="session")
def make_long_repository(make_repository, engine):
    """A model that never ends an answer by itself, far beyond the positions it was trained on."""

    def make(max_batch_size):
        values = json.loads((engine / "template_values.json").read_text())
        tokens = 16_000
        blocks = {"num_kv_blocks": max_batch_size * -(-tokens // BLOCK_TOKENS)}
        repository = make_repository(
            max_batch_size=max_batch_size, max_sequence_tokens=tokens, scheduler={**values["scheduler"], **blocks}
        )
        without_end(repository / "demo" / "1" / "engine")
        return repository

    return make


def write_adapter(folder, *, tokens):
    """An adapter for the stand-ins, with which answers have so many tokens."""
    folder.mkdir(parents=True)
    (folder / "tokens").write_text(str(tokens))
    np.save(folder / "model.lora_weights.npy", np.full((1, 4, 8), tokens, dtype=np.float16))
    np.save(folder / "model.lora_config.npy", np.ones((1, 4, 3), dtype=np.int32))


@pytest.fixture(scope="session")
def start_server(tmp_path_factory):
    """Start servers that end with the session, if a test did not end them before."""
    if not LAUNCHER.exists():
        pytest.skip(f"{LAUNCHER.relative_to(REPOSITORY)} is missing: python3 -m local.environments triton")
    with contextlib.ExitStack() as running:

        def start(repository, **options):
            return running.enter_context(TritonServer(repository, tmp_path_factory.mktemp("triton"), **options))

        yield start


@pytest.fixture(scope="session")
def server(start_server, make_repository):
    """A server as the demo release configures it: 16 slots, 256 tokens a sequence."""
    return start_server(make_repository())


@pytest.fixture(scope="session")
def long_server(start_server, make_long_repository):
    """A server with a slot for an answer that stays and one for another, neither of which ends by itself."""
    return start_server(make_long_repository(2))


@pytest.fixture(scope="session")
def make_topology(engine, tmp_path_factory):
    """Render the five models as assemble does, with the stand-in where the backend would be."""
    if not has_package("tokenizers"):
        pytest.skip("the serving environment lacks tokenizers: python3 -m local.environments triton")

    def make(gpus_per_node=1, **changed):
        repository = tmp_path_factory.mktemp("topology")
        known = json.loads((engine / "template_values.json").read_text())
        values = {**known, "repository_root": str(repository), "gpus": [], "kv_cache_fraction": 0.9}
        values |= {"paged_context": True, "chunked_prefill": True, "host_cache_bytes": 0}
        values |= {"loras": {}, "lora_cache": {}, "lora_type": "TYPE_FP16"}
        values |= {"guided_decoding_backend": "", **changed}
        assert len(render(TEMPLATES, "trt-engine", values, repository)) == 5
        name = values["name"]
        shutil.copytree(engine, repository / name / "1" / "engine")
        for number, folder in enumerate(sorted(values["loras"].values()), start=2):
            write_adapter(repository / name / "1" / "engine" / folder, tokens=number)
        described = {"encoded_vocab": ["a"], "tokenizer_str": "{}", "stop_token_ids": [1]}
        (repository / name / "1" / "engine" / VOCABULARY).write_text(json.dumps(described))
        scheduler = {**known["scheduler"], **values["scheduler"]}
        (repository / name / "1" / "engine" / "template_values.json").write_text(json.dumps({"scheduler": scheduler}))
        config = repository / name / "1" / "engine" / "config.json"
        mapping = {"pretrained_config": {"mapping": {"gpus_per_node": gpus_per_node}}}
        config.write_text(json.dumps({**json.loads(config.read_text()), **mapping}))
        stand_in = repository / f"{name}_tensorrt_llm"
        config = (stand_in / "config.pbtxt").read_text()
        assert config.count('backend: "tensorrtllm"') == 1
        (stand_in / "config.pbtxt").write_text(config.replace('backend: "tensorrtllm"', 'backend: "python"'))
        shutil.copy(STAND_INS / "tensorrt_llm_backend.py", stand_in / "1" / "model.py")
        openvino = TEMPLATES / "openvino" / "model" / "1"
        for file in ("openvino_runtime.py", "prompt_scores.py"):
            shutil.copy(openvino / file, stand_in / "1")
        shutil.copytree(openvino / "generation", stand_in / "1" / "generation")
        return repository

    return make


@pytest.fixture(scope="session")
def five(start_server, make_topology):
    """A trt-engine with everything that a release may ask for: adapters, guided decoding, a GPU of its node's own, and a
    template that takes no question without a mood, which the release sets."""
    asked = {"loras": LORAS, "guided_decoding_backend": "xgrammar", "chat_template_kwargs": {"mood": "fine"}}
    repository = make_topology(gpus_per_node=3, gpus=[2], **asked)
    template = repository / "demo" / "1" / "engine" / "chat_template.jinja"
    template.write_text(REFUSES + template.read_text())
    return start_server(repository)


@pytest.fixture(scope="session")
def llmapi(engine, start_server, tmp_path_factory):
    """A server of `demo` of the llmapi kind."""
    if not has_package("tokenizers"):
        pytest.skip("the serving environment lacks tokenizers: python3 -m local.environments triton")
    repository = tmp_path_factory.mktemp("llm-api")
    values = {**json.loads((engine / "template_values.json").read_text()), **SHARED, "options": {}}
    render(TEMPLATES, "llmapi", {**values, "loras": LORAS}, repository)
    shutil.copytree(engine, repository / "demo" / "1" / "engine")
    for tokens, folder in enumerate(LORAS.values(), start=2):
        write_adapter(repository / "demo" / "1" / "engine" / folder, tokens=tokens)
    shutil.copytree(STAND_INS / "tensorrt_llm", repository / "demo" / "1" / "tensorrt_llm")
    return start_server(repository)
