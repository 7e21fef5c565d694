"""quantize refuses what cannot work before it starts a toolkit."""

import pytest

from slipway.tasks.contracts.stored.plan import DatasetFile, Datasets, HubFile
from slipway.tasks.steps import quantize
from tests.fakes.documents.step_workspace import StepWorkspace
from tests.fakes.releases import release
from tests.support.refused import refused


def pinned(path):
    return DatasetFile(
        repo="org/texts", commit="a" * 40, file=HubFile(path=path, digest="git-sha1:" + "a" * 40, size_bytes=1)
    )


@pytest.mark.parametrize(
    "lines", [[], [{"prompt": "no text"}], [{"text": "a"}, {"text": ""}], [{"text": "a"}, {"text": 1}]]
)
def test_a_dataset_without_usable_texts_is_refused(tmp_path, lines):
    asked = release()
    plan = asked.plan.model_copy(update={"datasets": Datasets(perplexity=pinned("texts.jsonl"))})
    workspace = StepWorkspace(tmp_path, datasets={"texts.jsonl": lines})
    (tmp_path / "downloaded").mkdir()
    workspace.artifacts.put("download", plan.stages["download"].key, tmp_path / "downloaded")

    with refused(what="org/texts/texts.jsonl", found="a text on"):
        quantize.run(asked.model_copy(update={"plan": plan}), workspace)

    assert ("quantize", plan.stages["quantize"].key) not in workspace.artifacts.manifests


def test_a_calibration_set_shorter_than_asked_is_refused(tmp_path):
    asked = release(
        quantization={
            "format": "int8",
            "calibration": {"dataset": "hf://datasets/org/texts@main/a.jsonl", "samples": 3},
        }
    )
    plan = asked.plan.model_copy(update={"datasets": Datasets(calibration=pinned("a.jsonl"))})
    workspace = StepWorkspace(tmp_path, datasets={"a.jsonl": [{"text": "one"}, {"text": "two"}]})
    (tmp_path / "downloaded").mkdir()
    workspace.artifacts.put("download", plan.stages["download"].key, tmp_path / "downloaded")

    with refused(what="org/texts/a.jsonl is too small", found="2 texts", expected="3"):
        quantize.run(asked.model_copy(update={"plan": plan}), workspace)


def test_too_small_a_scratch_is_refused_before_anything_is_fetched(tmp_path):
    workspace = StepWorkspace(tmp_path, free_bytes=0)

    with refused(what="quantize needs 1 bytes, 0 are free"):
        quantize.run(release(), workspace)

    assert not (tmp_path / "scratch").exists()
