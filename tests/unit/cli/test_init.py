"""`slipway init` writes a spec with an engine that plan does not refuse."""

import socket

import pytest

from slipway.cli.runs import init
from slipway.cli.runs.init import Choice, Model, engines, fitting, positions_of, spec_text
from slipway.tasks.contracts.base import read_contract
from slipway.tasks.contracts.documents import parse_contract
from slipway.tasks.contracts.errors import InputError, UnavailableError
from slipway.tasks.contracts.site.site import HubSite, Site
from slipway.tasks.contracts.spec.spec import ReleaseSpec
from slipway.tasks.document_files import read_document
from tests.support.paths import REPOSITORY
from tests.support.refused import refused

MODEL = Model("acme/Big.Model-7B", "main", 131072)


@pytest.fixture
def site():
    return read_contract(Site, read_document(REPOSITORY / "sites/eks.yaml"), "eks.yaml")


def planner(*, least_gpus):
    """Plan of a model that needs this many GPUs in each weight format; others never fit."""

    def plan(text):
        spec = parse_contract(ReleaseSpec, text.encode(), "spec.yaml")
        needed = least_gpus.get(spec.quantization.format)
        if needed is None:
            raise InputError("the architecture is not served")
        if needed > spec.engine.tensor_parallel:
            raise InputError(
                f"engine.tensor_parallel 1 is too few. Set tensor_parallel {needed}."
            )  # as a step's process ends

    return plan


@pytest.mark.parametrize(
    ("least_gpus", "weights", "gpus"),
    [
        ({"none": 1, "fp8_online": 1}, "none", 1),
        ({"none": 2, "fp8_online": 1}, "fp8_online", 1),
        ({"none": 4}, "none", 4),
    ],
)
def test_the_most_accurate_format_on_the_fewest_gpus_is_chosen(site, least_gpus, weights, gpus):
    gpu = next(iter(site.gpus))

    assert fitting(MODEL, "vllm", gpu, planner(least_gpus=least_gpus)) == Choice("vllm", gpu, weights, gpus)


def test_the_spec_is_valid_and_says_what_else_fits_and_what_does_not(site):
    plan = planner(least_gpus={"fp8_online": 1})
    tried = [fitting(MODEL, kind, gpu, plan) for kind, gpu in engines(site)]

    text = spec_text(MODEL, site, tried)

    spec = parse_contract(ReleaseSpec, text.encode(), "spec.yaml")
    assert (spec.name, spec.engine.kind, spec.quantization.format) == ("big-model-7b", "vllm", "fp8_online")
    assert spec.engine.max_sequence_tokens == 8192
    assert text.count("fits with format fp8_online") == len(site.gpus)
    assert "# " in text
    assert "openvino on CPU: the architecture is not served" in text


def test_a_model_that_fits_nowhere_gets_no_spec(site):
    tried = [fitting(MODEL, "vllm", gpu, planner(least_gpus={})) for gpu in site.gpus]

    with refused(what="no engine of site", found="the architecture is not served", remedy="smaller model"):
        spec_text(MODEL, site, tried)


def test_a_silent_hub_is_not_waited_for(site, monkeypatch):
    monkeypatch.setattr(init, "ANSWER_S", 0.1)
    with socket.create_server(("127.0.0.1", 0)) as silent:
        hub = HubSite(endpoint=f"http://127.0.0.1:{silent.getsockname()[1]}")

        with pytest.raises(UnavailableError, match="does not answer for acme/model"):
            init.read_model(site.model_copy(update={"hub": hub}), "acme/model", "main")


@pytest.mark.parametrize("repo", ["org/On", "org/null", "org/1e3"])
def test_a_name_that_yaml_reads_otherwise_is_in_quotes(repo):
    text = init.document(Model(repo, "main", 4096), Choice("vllm", "NVIDIA-L4", "none"))

    assert parse_contract(ReleaseSpec, text.encode(), "spec.yaml").source.repo == repo


@pytest.mark.parametrize(
    ("repo", "refusal", "said"),
    [
        ("gpt2", "", "gpt2.yaml:5:3: source.repo: must be a repository of the Hub"),
        ("org/demo", "it does not fit", "demo.yaml: it does not fit"),
    ],
)
def test_why_there_is_no_spec_names_the_file_that_was_asked_for(monkeypatch, slipway, tmp_path, repo, refusal, said):
    def plan_here(spec, *_, **__):
        raise InputError(f"{spec}: {refusal}")

    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(init, "read_model", lambda *_: Model(repo, "main", 4096))
    monkeypatch.setattr(init, "plan_here", plan_here)

    code, printed = slipway("--site", str(REPOSITORY / "sites/kind.yaml"), "init", repo)

    assert code == 65
    assert said in " ".join(printed.split())
    assert "slipway-init-" not in printed


@pytest.mark.parametrize(
    ("config", "positions"),
    [
        ({"max_position_embeddings": 2048}, 2048),
        ({"text_config": {"max_position_embeddings": 512}}, 512),
        ({}, 4096),
        ([], 4096),
        ({"max_position_embeddings": "many"}, 4096),
    ],
)
def test_positions_are_those_of_the_language_model(config, positions):
    assert positions_of(config) == positions
