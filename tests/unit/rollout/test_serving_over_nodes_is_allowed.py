"""k8s_manifests/multinode: what serving over several nodes needs of a cluster, and no more."""

import shutil
import subprocess

import pytest

from tests.support.kubernetes_schemas import validate
from tests.support.paths import REPOSITORY
from tests.support.yaml_documents import load_all_yaml, load_yaml

FOLDER = REPOSITORY / "k8s_manifests" / "multinode"


def objects():
    listed = load_yaml((FOLDER / "kustomization.yaml").read_text())["resources"]
    return [load_yaml((FOLDER / name).read_text()) for name in listed]


@pytest.mark.parametrize("kubernetes", ["1.32", "1.35"])
def test_every_object_follows_the_schemas_of_kubernetes(kubernetes):
    for item in objects():
        validate(item, kubernetes)


def test_every_file_is_listed():
    assert {file.name for file in FOLDER.glob("*.yaml")} - {"kustomization.yaml"} == set(
        load_yaml((FOLDER / "kustomization.yaml").read_text())["resources"]
    )


def test_a_leader_only_looks_up_pods():
    role = next(item for item in objects() if (item["kind"], item["metadata"]["name"]) == ("Role", "slipway-leader"))

    assert role["rules"] == [{"apiGroups": [""], "resources": ["pods"], "verbs": ["get", "list"]}]


def test_an_overlay_takes_it_as_a_component(tmp_path):
    kubectl = shutil.which("kubectl")
    if kubectl is None:
        pytest.skip("there is no kubectl on this machine")
    shutil.copytree(REPOSITORY / "k8s_manifests", tmp_path / "manifests")
    overlay = tmp_path / "manifests" / "overlays" / "several-nodes"
    overlay.mkdir()
    (overlay / "kustomization.yaml").write_text("resources: [../../base]\ncomponents: [../../multinode]\n")

    done = subprocess.run([kubectl, "kustomize", str(overlay)], capture_output=True, text=True, check=True)

    names = {(item["kind"], item["metadata"]["name"]) for item in load_all_yaml(done.stdout)}
    assert {("ServiceAccount", "slipway-leader"), ("NetworkPolicy", "ranks")} <= names
