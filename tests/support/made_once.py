"""Tests that make a model in several formats share what does not depend on the format: its tokenizer and its traced form.

To convert a tokenizer takes a process and 0.9 CPU seconds, to trace a small model 0.7 to 1.8. What is refused is made each
time.
"""

import hashlib
import json
import shutil

import pytest

from slipway.tasks.engines.openvino import build, quantize

WEIGHTS = {".xml", ".bin", ".safetensors"}
TRACE = quantize.trace


@pytest.fixture(scope="session", autouse=True)
def tokenizers_converted_once(tmp_path_factory):
    """Convert the same files, weights aside, once a process."""
    convert, known = build.convert, {}

    def converted(checkpoint, out):
        files = [file for file in sorted(checkpoint.rglob("*")) if file.is_file() and file.suffix not in WEIGHTS]
        given = tuple((file.relative_to(checkpoint), hashlib.sha256(file.read_bytes()).digest()) for file in files)
        if given not in known:
            folder = tmp_path_factory.mktemp("tokenizer")
            known[given] = folder, convert(checkpoint, folder)
        folder, has_chat_template = known[given]
        shutil.copytree(folder, out, dirs_exist_ok=True)
        return has_chat_template

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(build, "convert", converted)
        yield


@pytest.fixture(scope="session", autouse=True)
def models_traced_once(tmp_path_factory):
    """Trace a model of the same class, configuration and weights once a process; yields what traces each time."""
    known = {}

    def traced(model, out):
        given = (type(model), _digest(model))
        if given not in known:
            folder = tmp_path_factory.mktemp("traced")
            TRACE(model, folder)
            known[given] = folder
        shutil.copytree(known[given], out, dirs_exist_ok=True)

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(quantize, "trace", traced)
        yield TRACE


def _digest(model):
    configuration = {name: value for name, value in model.config.to_dict().items() if name != "_name_or_path"}
    digest = hashlib.sha256(json.dumps(configuration, sort_keys=True, default=str).encode())
    for name, tensor in model.state_dict().items():
        digest.update(name.encode())
        digest.update(tensor.numpy())
    return digest.digest()
