"""Builds share what becomes of the same tokenizer: converting one takes a process and 0.9 CPU seconds, and tests build a
model in several formats. A tokenizer that is refused is converted each time.
"""

import hashlib
import shutil

import pytest

from slipway.tasks.engines.openvino import build

WEIGHTS = {".xml", ".bin", ".safetensors"}


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
