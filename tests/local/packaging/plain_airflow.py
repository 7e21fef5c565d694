"""An Airflow that has the wheel and nothing else of the project: plugin, provider and DAGs come from site-packages."""

import json
import os
import subprocess
from pathlib import Path

import yaml

from tests.fakes.releases import SPEC
from tests.support.paths import REPOSITORY

DAG_FILE = """\
from slipway.airflow.dags import release_dags

globals().update(release_dags("{specs}"))
"""
DAGS = ["release__demo", "remove_failed_pods", "retention", "rollback__demo"]
PROGRAM = Path(__file__).with_name("listed_by_airflow.py")


def listed(python, folder, **variables):
    """What the Airflow of an environment lists of a DAG file of three lines, with its home in `folder`."""
    dags, specs = folder / "dags", folder / "specs"
    for made in (dags, specs):
        made.mkdir()
    (specs / "demo.yaml").write_text(yaml.safe_dump(SPEC))
    (dags / "slipway_dags.py").write_text(DAG_FILE.format(specs=specs))
    environment = {
        "PATH": os.defpath,
        "HOME": str(folder),
        "AIRFLOW_HOME": str(folder / "airflow"),
        "AIRFLOW__CORE__DAGS_FOLDER": str(dags),
        "AIRFLOW__CORE__LOAD_EXAMPLES": "False",
        "AIRFLOW__CORE__DAGBAG_IMPORT_TIMEOUT": "600",
        "SLIPWAY_SITE": str(REPOSITORY / "sites" / "local.yaml"),
    } | variables
    done = subprocess.run(
        [python, "-P", PROGRAM], env=environment, cwd=folder, capture_output=True, text=True, check=False
    )
    assert done.returncode == 0, done.stderr[-3000:]
    return json.loads(done.stdout.splitlines()[-1])
