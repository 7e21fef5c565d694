"""Values of specs and site files that Kubernetes, DNS or a comparison would only refuse later."""

import copy

import pytest

from slipway.tasks.contracts.base import read_contract
from slipway.tasks.contracts.errors import InputError
from slipway.tasks.contracts.site.site import Site
from slipway.tasks.contracts.spec.spec import ReleaseSpec
from tests.support.paths import REPOSITORY
from tests.support.yaml_documents import load_yaml

SITE = load_yaml((REPOSITORY / "sites" / "kind.yaml").read_text())
SPEC = load_yaml((REPOSITORY / "specs" / "demo.yaml").read_text())


def changed(document, path, value):
    """A copy of the document with the value at a dotted path."""
    result = copy.deepcopy(document)
    *parents, last = path.split(".")
    place = result
    for name in parents:
        place = place[int(name)] if isinstance(place, list) else place.setdefault(name, {})
    place[last] = value
    return result


def refusal(model, document):
    with pytest.raises(InputError) as caught:
        read_contract(model, document, "file")
    return str(caught.value)


@pytest.mark.parametrize(
    "address",
    [
        "http://object_store:9000",
        "http://a..b",
        "http://.",
        "https://host:0",
        "https://host/path?query=1",
        "https://host/#fragment",
    ],
)
@pytest.mark.parametrize("section", ["hub", "object_store"])
def test_an_endpoint_that_no_client_can_use_is_refused(section, address):
    assert f"{section}.endpoint" in refusal(Site, changed(SITE, f"{section}.endpoint", address))


@pytest.mark.parametrize(
    "address", ["https://hub.example", "http://10.0.0.1:8080", "http://[fd00::1]:80", "http://minio.a.svc."]
)
def test_an_endpoint_may_be_a_name_or_an_address(address):
    assert read_contract(Site, changed(SITE, "hub.endpoint", address), "file").hub.endpoint == address


def test_a_password_in_an_endpoint_is_refused_and_not_shown():
    message = refusal(Site, changed(SITE, "object_store.endpoint", "http://user:hunter2@store.example"))

    assert "credentials belong in a Secret" in message
    assert "hunter2" not in message


@pytest.mark.parametrize(
    ("field", "value"),
    [("memory", "500m"), ("memory", "0"), ("scratch", "0Gi"), ("cpu", "8Gi"), ("cpu", "0"), ("cpu", "0m")],
)
def test_a_quantity_fits_its_resource(field, value):
    assert f"shapes.small.{field}" in refusal(Site, changed(SITE, f"shapes.small.{field}", value))


def test_an_address_range_has_no_zone():
    assert "no zone" in refusal(Site, changed(SITE, "hub.networks", ["::1%eth0"]))


def test_a_gpu_has_a_name():
    assert "engine.gpu" in refusal(ReleaseSpec, changed(SPEC, "engine.gpu", ""))


@pytest.mark.parametrize("secret", ["hf/..", "hf/..data", "a..b/token", "a.-b/token", "hf/."])
def test_a_secret_that_kubernetes_cannot_have_is_refused(secret):
    assert "source.token_secret" in refusal(ReleaseSpec, changed(SPEC, "source.token_secret", secret))


@pytest.mark.parametrize("secret", ["hf/token", "hf.hub/.token", "hf/HF_TOKEN"])
def test_a_secret_that_kubernetes_can_have_is_accepted(secret):
    spec = read_contract(ReleaseSpec, changed(SPEC, "source.token_secret", secret), "file")

    assert spec.source.token_secret == secret


@pytest.mark.parametrize("match", ["exact", "contains", "regex"])
def test_the_line_break_of_a_yaml_block_is_no_part_of_an_answer(match):
    question = {"prompt": "Capital of France?", "answer": "Paris\n", "match": match}
    spec = read_contract(ReleaseSpec, changed(SPEC, "gate.smoke", [question]), "file")

    assert spec.gate.smoke[0].accepts(" Paris\n")


@pytest.mark.parametrize("answer", [" ", "\n", " Paris"])
def test_an_answer_that_can_never_match_is_refused(answer):
    question = {"prompt": "Capital of France?", "answer": answer}

    assert "gate.smoke.0" in refusal(ReleaseSpec, changed(SPEC, "gate.smoke", [question]))
