"""docker-compose.yaml, as far as it can be checked without Docker."""

import pytest
import yaml
from compose_spec import PyCompose

from slipway.tasks.contracts.base import read_contract
from slipway.tasks.contracts.site.site import Site
from tests.support.paths import REPOSITORY
from tests.support.yaml_documents import load_yaml

COMPOSE = load_yaml((REPOSITORY / "docker-compose.yaml").read_text())


def test_the_file_follows_the_compose_specification():
    merged = yaml.safe_dump(COMPOSE)

    assert "api-server" in load_yaml(PyCompose.from_yaml(merged).to_yaml())["services"]


def test_the_validator_refuses_a_key_that_compose_does_not_know():
    with pytest.raises(ValueError, match="imagee"):
        PyCompose.from_yaml(yaml.safe_dump({"services": {"a": {"imagee": "x"}}}))


def test_every_service_that_another_waits_for_exists_and_can_become_healthy():
    services = COMPOSE["services"]
    for name, service in services.items():
        for other, wait in service.get("depends_on", {}).items():
            assert other in services, f"{name} waits for {other}"
            if wait["condition"] == "service_healthy":
                assert "healthcheck" in services[other], f"{name} waits for {other} to be healthy"


def test_every_path_that_a_service_mounts_or_builds_from_exists():
    for service in COMPOSE["services"].values():
        sources = [volume.split(":")[0] for volume in service.get("volumes", []) if volume.startswith("./")]
        sources += [service["build"]["dockerfile"]] if "build" in service else []
        for source in sources:
            assert (REPOSITORY / source).exists(), source


def test_what_is_mounted_into_airflow_is_what_its_image_has_there():
    lines = (REPOSITORY / "images/airflow/Dockerfile").read_text().splitlines()
    copied = {
        line.split()[-1].split("/")[0] for line in lines if line.startswith("COPY --chown") and "local/" not in line
    }
    mounts = [volume.split(":")[:2] for volume in COMPOSE["x-airflow"]["volumes"] if volume.startswith("./")]

    assert {source.removeprefix("./"): target for source, target in mounts} == {
        name: f"/app/{name}" for name in (*copied, "sites")
    }


def test_the_site_of_compose_reaches_the_object_store_at_its_fixed_address():
    site = read_contract(Site, load_yaml((REPOSITORY / "sites/compose.yaml").read_text()), "sites/compose.yaml")
    address = COMPOSE["services"]["object-store"]["networks"]["slipway"]["ipv4_address"]

    assert site.object_store.endpoint == f"http://{address}:9000"


@pytest.mark.parametrize("image", ["airflow", "tasks-cpu", "triton-cpu"])
def test_an_image_installs_its_lock_by_hash_and_runs_as_nobody_in_particular(image):
    text = (REPOSITORY / "images" / image / "Dockerfile").read_text()

    assert "--require-hashes" in text
    assert "USER 10001" in text
    assert f"requirements/{image.removesuffix('-cpu')}.lock" in text
    assert not [word for word in ("TOKEN", "PASSWORD", "SECRET") if word in text.upper()]


def test_the_cluster_answers_on_this_machine_alone_at_the_address_of_its_kubeconfig():
    assert COMPOSE["services"]["k3s"]["ports"] == ["127.0.0.1:6443:6443"]


@pytest.mark.parametrize("name", ["smollm2-135m", "qwen3-0.6b"])
def test_the_page_of_the_command_releases_a_model_that_compose_mounts_a_spec_of(name):
    spec = load_yaml((REPOSITORY / "specs" / f"{name}.yaml").read_text())

    assert spec["engine"]["kind"] == "openvino"
    assert f"specs/{name}.yaml" in (REPOSITORY / "docs" / "command.md").read_text()
    assert "./specs:/app/specs:ro" in COMPOSE["services"]["dag-processor"]["volumes"]
