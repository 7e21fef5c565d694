"""What plan says of a model whose chat template mentions thinking, and what later steps read of it."""

import logging

import pytest

from slipway.tasks.contracts.stored.plan import PlanRequest
from slipway.tasks.contracts.stored.release import Release
from slipway.tasks.steps import plan
from tests.fakes.hub import MemoryHub
from tests.fakes.releases import SPEC, spec
from tests.fakes.store.object_store import MemoryObjectStore
from tests.fakes.workspace import workspace
from tests.support.refused import refused

FILES = {
    "config.json": b'{"model_type": "llama"}',
    "model.safetensors": b"weights",
    "tokenizer.json": b"{}",
    "tokenizer_config.json": b"{}",
}
TEMPLATES = {"thinks": b"{% if enable_thinking %}<think>{% endif %}", "answers": b"{{ messages }}"}
GATE = {**SPEC["gate"], "smoke": [{**SPEC["gate"]["smoke"][0], "max_tokens": 16}]}


@pytest.fixture
def planned(tmp_path):
    """Plan the demo spec for a model with a chat template; the release."""

    def run(template=None, **changes):
        files = FILES | ({"chat_template.jinja": TEMPLATES[template]} if template else {})
        store, hub = MemoryObjectStore(), MemoryHub({"slipway/demo-llama": {"v1": files}})
        outcome = plan.run(PlanRequest(spec=spec(**changes), run="run-1"), workspace(tmp_path, hub=hub, store=store))
        return Release.model_validate_json(store.read_bytes(outcome.data["release"]))

    return run


@pytest.mark.parametrize(("template", "thinks"), [("thinks", True), ("answers", False), (None, False)])
def test_the_plan_records_whether_the_template_mentions_thinking(planned, template, thinks):
    assert planned(template).plan.thinks is thinks


@pytest.mark.parametrize(("template", "warnings"), [("thinks", 1), ("answers", 0)])
def test_a_low_limit_is_a_warning_in_the_log_and_in_the_plan(planned, caplog, template, warnings):
    with caplog.at_level(logging.WARNING):
        made = planned(template, gate=GATE)

    for said in ([record.message for record in caplog.records], made.plan.warnings):
        assert sum("gate.smoke has questions with 16 tokens" in line for line in said) == warnings


def test_arguments_without_a_template_are_refused(planned):
    with refused(what="engine.chat_template_kwargs has no effect"):
        planned(engine={**SPEC["engine"], "chat_template_kwargs": {"enable_thinking": False}})
