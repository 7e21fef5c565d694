"""OpenLineage's events of a promotion, as Airflow's own provider makes and sends them."""

import json
import os
import subprocess
from pathlib import Path

import yaml

from tests.airflows.environments import LINEAGE, PINNED
from tests.fakes.releases import SPEC, release
from tests.support.paths import REPOSITORY

PROGRAM = Path(__file__).with_name("promoted_lineage.py")


def test_a_promotion_names_the_revision_as_input_and_the_release_as_output(airflow_of, tmp_path):
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

    python = airflow_of(PINNED, *LINEAGE)
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
