"""A damaged or incomplete checkpoint is refused by name before a toolkit sees it."""

import json

import numpy as np
import pytest
from safetensors.numpy import save_file

from slipway.tasks.contracts.stored.plan import HubFile, Source
from slipway.tasks.engines.checkpoint.files import check_files, check_weights, copy_companions, read_config
from slipway.tasks.engines.checkpoint.positions import check_limits
from tests.fakes.releases import SPEC, spec
from tests.support.refused import refused


def source(*names):
    files = tuple(HubFile(path=name, digest="git-sha1:" + "a" * 40, size_bytes=1) for name in names)
    return Source(repo="org/model", revision="main", commit="b" * 40, files=files)


@pytest.fixture
def checkpoint(tmp_path):
    save_file({"weight": np.ones((4, 4), dtype=np.float32)}, tmp_path / "model.safetensors")
    (tmp_path / "config.json").write_text('{"architectures": ["LlamaForCausalLM"], "max_position_embeddings": 256}')
    return tmp_path


def test_a_repository_with_weights_configuration_and_tokenizer_is_taken():
    check_files(source("model.safetensors", "config.json", "tokenizer.json"))


@pytest.mark.parametrize("missing", ["model.safetensors", "config.json", "tokenizer.json"])
def test_a_repository_that_lacks_a_part_is_refused(missing):
    names = {"model.safetensors", "config.json", "tokenizer.json"} - {missing}

    with refused(what=f"org/model@main has no {missing.replace('model', '*')}"):
        check_files(source(*names))


def test_whole_weights_are_counted_in_bytes(checkpoint):
    assert check_weights(checkpoint) == (checkpoint / "model.safetensors").stat().st_size


@pytest.mark.parametrize("kept_bytes", [0, 4, 20, -1])
def test_truncated_weights_are_refused(checkpoint, kept_bytes):
    file = checkpoint / "model.safetensors"
    file.write_bytes(file.read_bytes()[:kept_bytes])

    with refused(what="model.safetensors", remedy="Choose another revision."):
        check_weights(checkpoint)


def test_a_missing_shard_is_refused(checkpoint):
    index = {"weight_map": {"weight": "model.safetensors", "other": "model-00002-of-00002.safetensors"}}
    (checkpoint / "model.safetensors.index.json").write_text(json.dumps(index))

    with refused(what="lacks model-00002-of-00002.safetensors"):
        check_weights(checkpoint)


def test_a_checkpoint_without_weights_is_refused(checkpoint):
    (checkpoint / "model.safetensors").unlink()

    with refused(what="lacks weights (*.safetensors)"):
        check_weights(checkpoint)


@pytest.mark.parametrize(
    ("text", "what"),
    [
        (None, "has no config.json"),
        ("{", "config.json is not valid JSON"),
        ("[]", "config.json is not a JSON object"),
        ("{}", "names no architectures"),
        ('{"architectures": []}', "names no architectures"),
    ],
)
def test_a_configuration_without_an_architecture_is_refused(checkpoint, text, what):
    file = checkpoint / "config.json"
    file.unlink() if text is None else file.write_text(text)

    with refused(what=what):
        read_config(checkpoint)


def test_a_sequence_longer_than_the_models_positions_is_refused(checkpoint):
    asked = spec(engine={**SPEC["engine"], "max_sequence_tokens": 257})

    with refused(what="engine.max_sequence_tokens", found="257", expected="at most 256"):
        check_limits(asked, read_config(checkpoint))


def test_a_sequence_as_long_as_the_models_positions_is_taken(checkpoint):
    check_limits(spec(engine={**SPEC["engine"], "max_sequence_tokens": 256}), read_config(checkpoint))


def test_companions_are_copied_and_weights_are_not(checkpoint, tmp_path_factory):
    for name in ("tokenizer.json", "tokenizer_config.json", "chat_template.jinja", "README.md"):
        (checkpoint / name).write_text("x")
    out = tmp_path_factory.mktemp("out")

    copy_companions(checkpoint, out)

    names = {file.name for file in out.iterdir()}
    assert names == {"config.json", "tokenizer.json", "tokenizer_config.json", "chat_template.jinja"}
