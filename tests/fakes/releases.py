"""Releases as plan would write them, for tests that need one."""

from datetime import UTC, datetime

from slipway.tasks.contracts.spec.spec import ReleaseSpec
from slipway.tasks.contracts.stored.artifact import STAGES
from slipway.tasks.contracts.stored.plan import Datasets, Estimate, Plan, Source, StagePlan, release_id
from slipway.tasks.contracts.stored.release import Release

SPEC = {
    "apiVersion": "slipway/v1",
    "kind": "Release",
    "name": "demo",
    "source": {"repo": "slipway/demo-llama", "revision": "v1"},
    "quantization": {"format": "int8"},
    "engine": {"kind": "openvino", "max_batch_size": 8, "max_input_tokens": 128, "max_sequence_tokens": 256},
    "gate": {
        "smoke": [{"prompt": "What is two plus two?", "answer": "Four."}],
        "expect": [{"metric": "smoke_accuracy", "at_least": 1.0}],
    },
}
EVERY_PARAMETER = {
    "temperature": 0.5,
    "seed": 3,
    "stop": ["\n", "END"],
    "top_p": 0.9,
    "top_k": 5,
    "min_tokens": 2,
    "presence_penalty": 0.5,
    "frequency_penalty": -0.5,
    "repetition_penalty": 1.5,
    "bad_words": ["no"],
}
"""Sampling parameters of a question, each with a value that changes an answer."""


def spec(**changes) -> ReleaseSpec:
    """The demo spec with top-level sections replaced."""
    return ReleaseSpec.model_validate({**SPEC, **changes})


def release(*, live: str | None = None, run: str = "run-1", **changes) -> Release:
    """A planned release of `spec(**changes)`; its keys are all the same digit per stage."""
    asked = spec(**changes)
    stages = {
        stage: StagePlan(key=f"{index + 1:x}" * 64, stored=False, fields={}) for index, stage in enumerate(STAGES)
    }
    found = release_id(asked.name, stages["publish"].key)
    plan = Plan(
        release_id=found,
        name=asked.name,
        run=run,
        action="release",
        source=Source(repo=asked.source.repo, revision=asked.source.revision, commit="a" * 40, files=()),
        datasets=Datasets(),
        stages=stages,
        live=live,
        estimate=Estimate(download_bytes=1, scratch_bytes=1, memory_bytes=1),
    )
    return Release(id=found, spec=asked, plan=plan, created_at=datetime(2026, 1, 1, tzinfo=UTC))
