"""What a spec may say of adapters that are added to its live model."""

import pytest
from pydantic import ValidationError

from slipway.tasks.contracts.engine.engine_kinds import ENGINE_KINDS
from slipway.tasks.contracts.spec.migrate import migrate
from slipway.tasks.contracts.spec.spec import ReleaseSpec
from slipway.tasks.contracts.stored.plan import Datasets, Source, Tools, stage_fields
from tests.fakes.releases import SPEC
from tests.support.refused import refused

ENGINE = {**SPEC["engine"], "kind": "vllm", "gpu": "NVIDIA-L4", "options": {"max_loras": 2, "max_lora_rank": 16}}
POLITE = {"name": "polite", "repo": "org/polite", "smoke": [{"prompt": "Hello?", "answer": "Good day."}]}


def spec(*adapters, engine=None, **changes):
    format_ = {"quantization": {"format": "none"}}
    return ReleaseSpec.model_validate(
        {**SPEC, **format_, "engine": {**ENGINE, **(engine or {})}, "adapters": adapters, **changes}
    )


def test_adapters_are_no_part_of_a_release():
    source = Source(repo="slipway/demo-llama", revision="v1", commit="a" * 40, files=())
    with_, without = (
        stage_fields(asked, source, Datasets(), Tools(producers={}, templates={})) for asked in (spec(POLITE), spec())
    )
    assert with_ == without
    assert "adapters" not in spec().model_dump(mode="json")


@pytest.mark.parametrize(
    ("changes", "said"),
    [
        ({"engine": {"options": {"max_loras": 2}}}, "adapters need room in the server"),
        ({"engine": {"options": {"max_lora_rank": 8}}}, "adapters need room in the server"),
        (
            {"engine": {"kind": "trt-engine"}},
            "trt-engine cannot take adapters while it is live: adapters are converted",
        ),
        ({"engine": {"kind": "llmapi"}}, "llmapi cannot take adapters while it is live: its server is started for"),
        (
            {"engine": SPEC["engine"] | {"kind": "openvino", "gpu": None}},
            "it serves no LoRA adapters. Choose engine kind vllm",
        ),
        ({"engine": {"lora": [{"name": "polite", "repo": "org/other"}]}}, "name polite twice"),
        ({"engine": {"lora": [{"name": name, "repo": "org/other"} for name in ("one", "two")]}}, "name 3 adapters"),
        ({"serving": {"group": "chat", "gpus": [0]}}, "adapters need a server of the model's own"),
    ],
)
def test_what_cannot_take_adapters_is_refused_with_the_reason(changes, said):
    with pytest.raises(ValidationError) as refused:
        spec(POLITE, **changes)
    assert said in str(refused.value)


@pytest.mark.parametrize("smoke", [[], [{"prompt": "Hello?", "answer": "Good day.", "lora": "polite"}]])
def test_an_adapter_has_questions_of_its_own(smoke):
    with pytest.raises(ValidationError):
        spec({**POLITE, "smoke": smoke})


def test_every_kind_that_serves_adapters_takes_them_live_or_says_why_not():
    live = {kind for kind, traits in ENGINE_KINDS.items() if "max_lora_rank" in traits.options}
    without_reason = {
        kind for kind, traits in ENGINE_KINDS.items() if traits.adapters and not traits.adapters.fixed_because
    }
    assert live == without_reason == {"vllm"}


def test_a_spec_with_adapters_of_its_live_model_does_not_migrate_to_a_kind_without_them():
    made = spec(POLITE)
    with refused(what="it takes no adapters while it is live", found="polite"):
        migrate(made, made.model_dump(mode="json"), "llmapi")
