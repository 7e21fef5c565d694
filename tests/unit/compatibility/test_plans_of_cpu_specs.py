"""Specs of public models on CPU, planned on the sites that have no GPU, against what is recorded of the models."""

import pytest

from slipway.tasks.contracts.base import read_contract
from slipway.tasks.contracts.site.site import Site
from slipway.tasks.contracts.spec.spec import ReleaseSpec
from tests.fakes.documents.planned_release import release_of
from tests.fakes.hubs.public_hub import MODELS, PublicHub
from tests.support.paths import REPOSITORY
from tests.support.refused import refused
from tests.support.yaml_documents import load_yaml

SMALL, LARGER = "smollm2-135m", "qwen3-0.6b"
HEADER_BYTES = 64 * 2**10
"""More than the header of a safetensors file with some hundred tensors."""


def document(folder, name):
    return load_yaml((REPOSITORY / folder / f"{name}.yaml").read_text())


@pytest.fixture
def planned(tmp_path):
    def run(name, site, **shapes):
        data = document("sites", site)
        data["shapes"] |= {shape: data["shapes"][shape] | changed for shape, changed in shapes.items()}
        spec = read_contract(ReleaseSpec, document("specs", name), name)
        return release_of(spec, read_contract(Site, data, site), PublicHub(), tmp_path)

    return run


@pytest.mark.parametrize(("name", "site"), [(SMALL, "local"), (SMALL, "compose"), (LARGER, "compose")])
def test_a_spec_for_cpus_fits_the_sites_that_its_comment_names(planned, name, site):
    release = planned(name, site)

    assert release.plan.action == "release"
    assert len(release.spec.source.revision) == 40


def test_a_laptops_shapes_are_too_small_for_the_larger_model_until_they_are_raised_as_its_comment_says(planned):
    with refused(found="4Gi in shapes.compute.scratch"):
        planned(LARGER, "local")

    planned(LARGER, "local", compute={"memory": "8Gi", "scratch": "8Gi"})


@pytest.mark.parametrize("name", [SMALL, LARGER])
def test_the_recorded_file_is_as_large_as_the_recorded_dimensions_make_it(name):
    model = MODELS[document("specs", name)["source"]["repo"]]
    config, (size_bytes,) = model["config"], model["shards"]
    hidden, heads = config["hidden_size"], config["num_attention_heads"]
    head = config.get("head_dim", hidden // heads)
    norms = 2 * hidden + (2 * head if config["model_type"] == "qwen3" else 0)
    attention = 2 * hidden * head * (heads + config["num_key_value_heads"])
    layer = attention + 3 * hidden * config["intermediate_size"] + norms
    embedding = config["vocab_size"] * hidden

    parameters = config["num_hidden_layers"] * layer + embedding + hidden
    copies = 2 if config["model_type"] == "qwen3" else 1  # Qwen's file holds the tied last layer too

    assert parameters == model["parameters"]
    assert 0 < size_bytes - 2 * (parameters + (copies - 1) * embedding) < HEADER_BYTES


@pytest.mark.parametrize("name", [SMALL, LARGER])
def test_no_limit_of_the_gate_depends_on_the_machine(name):
    expectations = document("specs", name)["gate"]["expect"]

    assert not [line for line in expectations if line["metric"].endswith("_ms")]
    assert [line for line in expectations if line.get("of") == "live"]
