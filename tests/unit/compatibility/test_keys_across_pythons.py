"""Keys are the same whichever Python computes them: images, laptops and Airflow do not share one version.

Other interpreters of a machine have neither pydantic nor PyYAML. So this environment makes the fields of the golden
documents out of specs, and every interpreter computes keys from the fields, by the source of the same functions, which
need only the standard library.
"""

import inspect
import json
import os
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

from slipway.tasks.contracts.base import canonical_json, sha256_of
from slipway.tasks.contracts.stored.artifact import STAGES
from slipway.tasks.contracts.stored.plan import (
    INPUTS,
    DatasetFile,
    Datasets,
    HubFile,
    Source,
    Tools,
    stage_fields,
    stage_keys,
)
from tests.fakes.releases import SPEC, spec
from tests.fixtures.make_documents import FOLDER
from tests.support.goldens import GOLDEN, check_goldens

HASH_SEEDS = ("0", "1")
VERSIONS = ("3.11", "3.12", "3.13")
NUMBERS = {
    "a": 0.1,
    "b": 1e-07,
    "c": 1e22,
    "d": 2**53,
    "e": -0.0,
    "f": 1.0,
    "g": 1,
    "h": True,
    "i": 123456789.123456789,
}
SPECS = {
    "openvino": {"engine": {**SPEC["engine"], "options": {**NUMBERS, "text": 'naïve ☃ 😀 \u2028 " \\ </'}}},
    "trt-engine": {
        "name": "demo-gpu",
        "quantization": {"format": "fp8", "calibration": {"dataset": "hf://datasets/org/texts@main/c.jsonl"}},
        "engine": {**SPEC["engine"], "kind": "trt-engine", "gpu": "NVIDIA-L4", "tensor_parallel": 2},
    },
    "vllm": {
        "quantization": {"format": "none"},
        "engine": {
            **SPEC["engine"],
            "kind": "vllm",
            "gpu": "NVIDIA-L4",
            "chat_template_kwargs": {"enable_thinking": False, "depth": 3, "language": "français"},
            "lora": [{"name": "polite", "repo": "org/polite"}],
            "speculative": {"method": "ngram", "num_tokens": 3},
        },
    },
}  # fmt: skip


def hub_file(path, digit):
    return HubFile(path=path, digest=f"sha256:{digit * 64}", size_bytes=1)


def planned(changes):
    """Fields and keys of a spec, with everything else the same."""
    asked = spec(**changes)
    source = Source(
        repo="org/model",
        revision="main",
        commit="c" * 40,
        files=(hub_file("model.safetensors", "a"), hub_file("Z.json", "b"), hub_file("config.json", "d")),
    )
    texts = DatasetFile(repo="org/texts", commit="c" * 40, file=hub_file("c.jsonl", "e"))
    datasets = Datasets(calibration=texts if asked.quantization.calibration else None, perplexity=texts)
    tools = Tools(producers={"build": {"tool": "1.2.3"}}, templates={"config.pbtxt.j2": "f" * 64})
    adapters = {adapter.name: source for adapter in asked.engine.lora}
    fields = stage_fields(asked, source, datasets, tools, adapters=adapters)
    return {"fields": fields, "keys": stage_keys(fields)}


def test_keys_of_these_specs_are_still_the_same():
    check_goldens("keys", {f"{name}.json": json.dumps(planned(SPECS[name]), indent=1) + "\n" for name in SPECS})


PROGRAM = f"""
from __future__ import annotations
import hashlib, json, sys
STAGES, INPUTS = {STAGES!r}, {INPUTS!r}
{inspect.getsource(canonical_json)}
{inspect.getsource(sha256_of)}
{inspect.getsource(stage_keys)}
print(json.dumps([stage_keys(each) for each in json.load(sys.stdin)]))
"""


def computed_by(python, fields, hash_seed):
    """The keys that an interpreter computes."""
    environment = {"PATH": os.environ["PATH"], "HOME": os.environ.get("HOME", "/"), "PYTHONHASHSEED": hash_seed}
    done = subprocess.run(
        [python, "-c", PROGRAM],
        env=environment,
        input=json.dumps(fields),
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 0, f"{python}: {done.stderr[-2000:]}"
    return json.loads(done.stdout)


def is_of(python, version):
    """Whether a program runs and is a Python of this version; a shim of pyenv may be neither."""
    command = [python, "-c", "import sys; print('%d.%d' % sys.version_info[:2])"]
    try:
        done = subprocess.run(command, capture_output=True, text=True, check=False)
    except OSError:
        return False
    return (done.returncode, done.stdout.strip()) == (0, version)


def interpreters(version):
    """Programs that may be a Python of this version: this one, one on the path, and those of pyenv and uv."""
    name, home = f"python{version}", Path.home()
    pyenv = Path(os.environ.get("PYENV_ROOT", home / ".pyenv"))
    uv = Path(os.environ.get("UV_PYTHON_INSTALL_DIR", home / ".local" / "share" / "uv" / "python"))
    yield from [sys.executable] if sys.version_info[:2] == tuple(map(int, version.split("."))) else []
    yield from filter(None, [shutil.which(name)])
    for folder, pattern in ((pyenv / "versions", f"{version}.*"), (uv, f"cpython-{version}*")):
        yield from (str(found / "bin" / name) for found in sorted(folder.glob(pattern)))


@pytest.mark.parametrize("version", VERSIONS)
def test_every_python_computes_the_keys_of_the_golden_documents(version):
    golden = [json.loads(path.read_bytes()) for path in sorted((GOLDEN / "keys").glob("*.json"))]
    for path in sorted(FOLDER.glob("*/release.json")):
        stages = json.loads(path.read_bytes())["plan"]["stages"]
        parts = {"fields": "fields", "keys": "key"}
        golden.append({part: {stage: each[name] for stage, each in stages.items()} for part, name in parts.items()})
    fields = [each["fields"] for each in golden]

    found = [python for python in dict.fromkeys(interpreters(version)) if is_of(python, version)]
    if not found:
        pytest.skip(f"this machine has no Python {version} that runs")
    assert len(golden) > len(SPECS)
    for python in found:
        for seed in HASH_SEEDS:
            assert computed_by(python, fields, seed) == [each["keys"] for each in golden], python
