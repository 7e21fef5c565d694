"""The chart, rendered by Helm's own library, has the objects that kustomize makes of the same folders."""

import json
import os
import shutil
import subprocess
import sys

import pytest
import yaml

from tests.support.paths import ENVIRONMENTS, REPOSITORY
from tests.support.yaml_documents import load_all_yaml, load_yaml
from tests.unit.manifests.objects import MANIFESTS

RENDER = """
import json, sys
import helm_python
with helm_python.Chart.load(sys.argv[1]) as chart:
    print(chart.render(json.load(sys.stdin), name="slipway", namespace="slipway")["slipway/templates/objects.yaml"])
"""
CONTAINED = {"autoscaling"}
"""Those that another component contains, beside which kustomize refuses them."""
COMPONENTS = load_yaml((MANIFESTS / "chart" / "values.yaml").read_text())["components"]
HELM = ENVIRONMENTS / "helm" / "bin" / "python"

pytestmark = [
    pytest.mark.skipif(shutil.which("kubectl") is None, reason="there is no kubectl on this machine"),
    pytest.mark.skipif(not HELM.exists(), reason="python3 -m local.environments helm was not run"),
]


@pytest.fixture(scope="module")
def chart(tmp_path_factory):
    command = [sys.executable, MANIFESTS / "chart" / "package.py", tmp_path_factory.mktemp("chart")]
    return subprocess.run(command, capture_output=True, text=True, check=True).stdout.strip()


def helm(chart, **values):
    """What Helm says of the chart with these values."""
    command = [HELM, "-c", RENDER, chart]
    return subprocess.run(command, input=json.dumps(values), capture_output=True, text=True, check=False)


def rendered(chart, **values):
    done = helm(chart, **values)
    assert done.returncode == 0, done.stderr
    return by_key(done.stdout)


def kustomized(folder):
    return by_key(subprocess.run(["kubectl", "kustomize", folder], capture_output=True, text=True, check=True).stdout)


def by_key(text):
    objects = list(load_all_yaml(text))
    found = {key_of(each): each for each in objects if each}
    assert len(found) == len([each for each in objects if each])
    return found


def key_of(each):
    metadata = each["metadata"]
    return "/".join(part for part in (each["kind"], metadata.get("namespace"), metadata["name"]) if part)


def test_without_values_the_chart_is_the_base(chart):
    assert rendered(chart) == kustomized(MANIFESTS / "base")


def test_every_component_of_the_manifests_is_one_of_the_chart():
    assert {file.parent.name for file in MANIFESTS.glob("*/kustomization.yaml")} == {"base", *COMPONENTS}


def test_with_every_component_each_object_is_as_kustomize_makes_it(chart, tmp_path):
    manifests = os.path.relpath(MANIFESTS, tmp_path)
    overlay = {
        "resources": [f"{manifests}/base"],
        "components": [f"{manifests}/{name}" for name in COMPONENTS if name not in CONTAINED],
    }
    (tmp_path / "kustomization.yaml").write_text(yaml.safe_dump(overlay))

    assert rendered(chart, components=dict.fromkeys(COMPONENTS, True)) == kustomized(tmp_path)


def test_patches_of_values_make_an_overlay(chart):
    base, wanted = kustomized(MANIFESTS / "base"), kustomized(MANIFESTS / "overlays" / "eks")
    patches = {key: each for key, each in wanted.items() if each != base[key]}

    assert len(patches) > len(base) / 4
    assert rendered(chart, patches=patches) == wanted


@pytest.mark.parametrize(
    ("values", "said"),
    [
        ({"components": {"monitor": True}}, "components.monitor: there is no such folder"),
        ({"patches": {"ServiceAccount/slipway-planner": {}}}, "no object is called ServiceAccount/slipway-planner"),
    ],
)
def test_a_name_that_nothing_has_is_refused(chart, values, said):
    assert said in helm(chart, **values).stderr


def test_the_chart_has_the_version_of_the_project(chart):
    assert f'version = "{chart.rpartition("-")[2].removesuffix(".tgz")}"' in (REPOSITORY / "pyproject.toml").read_text()
