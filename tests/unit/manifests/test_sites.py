"""The site files: each is valid, and says what its place needs."""

import pytest

from slipway.tasks.contracts.base import read_contract
from slipway.tasks.contracts.site.site import Site, quantity
from tests.support.paths import REPOSITORY
from tests.support.yaml_documents import load_yaml

SITES = sorted((REPOSITORY / "sites").glob("*.yaml"))


def read(name):
    file = REPOSITORY / "sites" / f"{name}.yaml"
    return read_contract(Site, load_yaml(file.read_text()), file.name)


@pytest.mark.parametrize("file", SITES, ids=lambda file: file.stem)
def test_a_site_file_is_a_site_of_its_own_name_with_shapes_for_the_cpu_steps(file):
    site = read(file.stem)

    assert site.name == file.stem
    assert {"small", "transfer", "compute", "serving"} <= set(site.shapes)
    assert "openvino" in site.images.serving


def test_on_a_laptop_servers_bind_to_the_address_of_their_pod():
    assert read("local").serving.bind_address == "$(POD_IP)"


@pytest.mark.parametrize("name", ["kind", "eks", "compose"])
def test_in_a_cluster_servers_bind_to_every_address(name):
    assert read(name).serving.bind_address == "0.0.0.0"


def test_eks_holds_no_keys_defers_its_tasks_and_names_its_gpus():
    site = read("eks")

    assert site.object_store.credentials_secret is None
    assert site.airflow.deferrable
    assert {name: gpu.architecture for name, gpu in site.gpus.items()} == {
        "NVIDIA-L4": "sm_89",
        "NVIDIA-A10G": "sm_86",
        "NVIDIA-H100-80GB-HBM3": "sm_90",
    }
    assert site.shapes["gpu"].gpus > 0


SYSTEM_CPU = 0.95
"""What kind's own pods request of its only node (kind v0.30 with kindnet: control plane 650m, CoreDNS 200m, kindnet 100m)."""


@pytest.mark.parametrize("step", ["small", "transfer", "compute", "serving"])
def test_on_a_kind_node_of_two_cpus_every_step_fits_beside_a_live_release_and_a_candidate(step):
    shapes = read("kind").shapes
    servers = 2 * quantity(shapes["serving"].cpu), 2 * quantity(shapes["serving"].memory)

    assert quantity(shapes[step].cpu) + servers[0] <= 2 - SYSTEM_CPU
    assert quantity(shapes[step].memory) + servers[1] <= quantity("7Gi")


@pytest.mark.parametrize("name", ["local", "kind"])
def test_small_places_have_no_gpu(name):
    assert read(name).gpus == {}
