"""A chat template is a stranger's program: plan renders the release's questions by it, within the servers' limits."""

import json

import pytest

from slipway.tasks.contracts.stored.plan import PlanRequest
from slipway.tasks.steps import plan
from tests.fakes.hub import MemoryHub
from tests.fakes.releases import SPEC, spec
from tests.fakes.workspace import workspace
from tests.support.refused import refused

ENDLESS = "{% for a in range(99999) %}{% for b in range(99999) %}{% endfor %}{% endfor %}x"
SPECIAL = "{% if mode is defined and messages[-1].content == 'Once' %}{{ raise_exception(mode) }}{% endif %}"
"""Fails with one argument and one question together."""
QUESTION = SPEC["gate"]["smoke"][0]
GATE = {**SPEC["gate"], "smoke": [QUESTION, {**QUESTION, "prompt": "Once"}]}
ARGUMENTS = {**SPEC["engine"], "chat_template_kwargs": {"mode": "brief"}}


def planned(tmp_path, template, **changes):
    settings = json.dumps({"chat_template": template}).encode()
    files = {"config.json": b'{"model_type": "llama"}', "model.safetensors": b"weights", "tokenizer.json": b"{}"}
    hub = MemoryHub({"slipway/demo-llama": {"v1": {**files, "tokenizer_config.json": settings}}})
    return plan.run(PlanRequest(spec=spec(**changes), run="run-1"), workspace(tmp_path, hub=hub))


def test_a_template_that_renders_the_questions_is_taken(tmp_path):
    assert planned(tmp_path, SPECIAL + "{{ messages[-1].content }}", gate=GATE).data["action"] == "release"


@pytest.mark.parametrize(
    ("template", "changes", "found"),
    [
        (ENDLESS, {}, "took more than"),
        ("{% for", {}, "unexpected"),
        ("{{ 'x' * 99999999999 }}", {}, "MemoryError"),
        (SPECIAL + "{{ messages[-1].content }}", {"gate": GATE, "engine": ARGUMENTS}, "brief"),
    ],
    ids=["endless", "broken", "huge", "with its arguments"],
)
def test_a_template_that_does_not_render_them_is_refused_in_its_own_words(tmp_path, template, changes, found):
    with refused(what="does not render the questions of gate.smoke", found=found):
        planned(tmp_path, template, **changes)
