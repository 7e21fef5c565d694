"""OpenLineage's events of a promotion, as Airflow's own provider makes and sends them."""

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest
import yaml

from tests.fakes.releases import SPEC, release
from tests.local.packaging.conftest import uv
from tests.support.paths import REPOSITORY

PROGRAM = Path(__file__).with_name("promoted_lineage.py")
PINNED = next(
    line.split()[0]
    for line in (REPOSITORY / "requirements" / "airflow.in").read_text().splitlines()
    if line.startswith("apache-airflow==")
)


@pytest.fixture
def python(wheel, tmp_path):
    path = tmp_path / "environment" / "bin" / "python"
    uv("venv", "--quiet", "--python", sys.executable, tmp_path / "environment")
    packages = (PINNED, f"{wheel}[airflow]", "apache-airflow-providers-openlineage>=2,<3")
    uv("pip", "install", "--quiet", "--python", path, *packages)
    return path


def test_a_promotion_names_the_revision_as_input_and_the_release_as_output(python, tmp_path):
    specs, events, live = tmp_path / "specs", tmp_path / "events", release()
    specs.mkdir()
    (specs / "demo.yaml").write_text(yaml.safe_dump(SPEC))
    environment = {
        "PATH": os.defpath,
        "HOME": str(tmp_path),
        "AIRFLOW_HOME": str(tmp_path / "airflow"),
        "AIRFLOW__OPENLINEAGE__TRANSPORT": json.dumps({"type": "file", "log_file_path": str(events), "append": True}),
        "SLIPWAY_SITE": str(REPOSITORY / "sites" / "local.yaml"),
    }
    uri = f"s3://slipway/releases/demo/{live.id}/release.json"

    subprocess.run(
        [python, "-P", PROGRAM, specs, uri], env=environment, input=live.plan.model_dump_json(), text=True, check=True
    )

    event = json.loads(events.read_text())
    found = {
        kind: [(each["namespace"], each["name"], each["facets"]["version"]["datasetVersion"]) for each in event[kind]]
        for kind in ("inputs", "outputs")
    }
    source = live.plan.source
    hub = yaml.safe_load((REPOSITORY / "sites" / "local.yaml").read_text())["hub"]["endpoint"]
    assert event["eventType"] == "COMPLETE"
    assert found == {
        "inputs": [(hub, source.repo, source.commit)],
        "outputs": [("s3://slipway", "releases/demo", live.id)],
    }
