"""The demo's spec fits the demo's model and datasets."""

import json
import re

import pytest

from slipway.tasks.contracts.base import read_contract
from slipway.tasks.contracts.fit.resolution import resolve
from slipway.tasks.contracts.site.site import Site
from slipway.tasks.contracts.spec.spec import ReleaseSpec
from slipway.tasks.contracts.stored.plan import HubFile, Source
from slipway.tasks.engines.checkpoint.files import read_config
from slipway.tasks.engines.checkpoint.positions import check_limits
from slipway.tasks.engines.registry import planner_for
from tests.support.paths import HUB, REPOSITORY
from tests.support.yaml_documents import load_yaml
from tests.unit.engines.test_openvino_requests import SHAPE

CANARY = REPOSITORY / "demo" / "canary.py"


@pytest.fixture
def demo():
    file = REPOSITORY / "specs" / "demo.yaml"
    return read_contract(ReleaseSpec, load_yaml(file.read_text()), file.name)


@pytest.fixture
def checkpoint(demo):
    return HUB / demo.source.repo / demo.source.revision


def lines_of(uri):
    repo, _, rest = uri.removeprefix("hf://datasets/").partition("@")
    file = HUB / "datasets" / repo / "v1" / rest.partition("/")[2]
    return [json.loads(line) for line in file.read_text().splitlines()]


def test_the_engine_takes_the_demo(demo, checkpoint):
    site = Site.model_validate(
        {
            "apiVersion": "slipway/v1",
            "kind": "Site",
            "name": "here",
            "object_store": {"bucket": "slipway"},
            "images": {"tasks": "tasks:1", "serving": {"openvino": "triton:1"}},
            "shapes": dict.fromkeys(("small", "transfer", "compute", "serving"), SHAPE),
        }
    )
    files = tuple(
        HubFile(path=file.name, digest="git-sha1:" + "a" * 40, size_bytes=file.stat().st_size)
        for file in checkpoint.iterdir()
    )
    source = Source(repo=demo.source.repo, revision=demo.source.revision, commit="b" * 40, files=files)

    planner_for(demo.engine.kind).check(resolve(demo, site), source, {})
    check_limits(demo, read_config(checkpoint))


def test_the_demo_asks_what_its_model_was_taught(demo):
    known = {line["prompt"]: line["answer"] for line in lines_of(demo.gate.quality.dataset)}

    assert {question.prompt: question.answer for question in demo.gate.smoke}.items() <= known.items()


def test_the_demos_perplexity_has_texts(demo):
    assert all(line["text"] for line in lines_of(demo.gate.quality.perplexity))


def test_the_canarys_spec_has_the_line_that_the_demo_changes():
    file = REPOSITORY / "demo" / "canary.yaml"
    [was, becomes] = re.findall(r'_LINE.*"(max_batch_size: \d+)", "(max_batch_size: \d+)"', CANARY.read_text())[0]
    text = file.read_text()

    assert text.count(was) == 1
    good, slow = (read_contract(ReleaseSpec, load_yaml(text.replace(was, line)), file.name) for line in (was, becomes))
    assert (good.engine.max_batch_size, slow.engine.max_batch_size) == (16, 1)
    assert slow.rollout.steps[-1] == 50
