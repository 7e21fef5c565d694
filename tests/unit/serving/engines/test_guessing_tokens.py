"""The llmapi model makes TensorRT-LLM's own configuration of the way in which tokens are guessed."""

import json
import sys
from pathlib import Path
from types import ModuleType

import pydantic
import pytest
from engine_arguments import read_arguments
from speculation import with_speculation

NAMES = ("EagleDecodingConfig", "MTPDecodingConfig", "DraftTargetDecodingConfig", "NGramDecodingConfig")


@pytest.fixture
def llmapi(monkeypatch):
    """tensorrt_llm.llmapi, whose classes forbid fields that they do not have; `sampling`: as later versions of 1.2."""

    def install(*, sampling):
        class Base(pydantic.BaseModel, extra="forbid"):
            max_draft_len: int | None = None
            speculative_model_dir: str | None = None
            num_nextn_predict_layers: int | None = None
            max_matching_ngram_size: int | None = None

        class Later(Base):
            allow_advanced_sampling: bool = False

        package, module = ModuleType("tensorrt_llm"), ModuleType("tensorrt_llm.llmapi")
        for name in NAMES:
            setattr(module, name, type(name, (Later if sampling else Base,), {}))
        package.llmapi = module
        monkeypatch.setitem(sys.modules, "tensorrt_llm", package)
        monkeypatch.setitem(sys.modules, "tensorrt_llm.llmapi", module)
        return module

    return install


def test_arguments_without_guessing_stay_as_they_are():
    assert with_speculation({"max_batch_size": 8}, Path("/engine")) == {"max_batch_size": 8}


@pytest.mark.parametrize("sampling", [True, False])
@pytest.mark.parametrize(
    ("stated", "name", "fields"),
    [
        (
            {"decoding_type": "Eagle", "max_draft_len": 3, "speculative_model_dir": "draft"},
            "EagleDecodingConfig",
            {"max_draft_len": 3, "speculative_model_dir": "/engine/draft"},
        ),
        ({"decoding_type": "MTP", "num_nextn_predict_layers": 2}, "MTPDecodingConfig", {"num_nextn_predict_layers": 2}),
        (
            {"decoding_type": "DraftTarget", "max_draft_len": 4, "speculative_model_dir": "draft"},
            "DraftTargetDecodingConfig",
            {"max_draft_len": 4, "speculative_model_dir": "/engine/draft"},
        ),
        (
            {"decoding_type": "NGram", "max_draft_len": 5, "max_matching_ngram_size": 4},
            "NGramDecodingConfig",
            {"max_draft_len": 5, "max_matching_ngram_size": 4},
        ),
    ],
)
def test_each_method_becomes_its_class_and_sampling_is_kept_where_it_can_be(llmapi, stated, name, fields, sampling):
    classes = llmapi(sampling=sampling)

    made = with_speculation({"max_batch_size": 8, "speculative_config": stated}, Path("/engine"))

    assert type(made["speculative_config"]) is getattr(classes, name)
    expected = {**fields, **({"allow_advanced_sampling": True} if sampling else {})}
    assert made["speculative_config"].model_dump(exclude_none=True) == expected
    assert made["max_batch_size"] == 8


def test_vllm_reads_the_draft_where_the_server_has_the_model(tmp_path):
    file = tmp_path / "model.json"
    file.write_text(json.dumps({"max_num_seqs": 8, "speculative_config": {"method": "eagle", "model": "draft"}}))

    found = read_arguments(file, Path("/here/engine"))

    assert (found["model"], found["max_num_seqs"]) == ("/here/engine", 8)
    assert found["speculative_config"] == {"method": "eagle", "model": "/here/engine/draft"}


def test_vllm_without_a_draft_is_told_of_none(tmp_path):
    file = tmp_path / "model.json"
    file.write_text(json.dumps({"speculative_config": {"method": "ngram"}}))

    assert read_arguments(file, Path("/e")) == {"model": "/e", "speculative_config": {"method": "ngram"}}
