"""What each DAG file makes in a fresh process, as Airflow's dag-processor reads it: no DAG of another file, none twice."""

import os
import subprocess
import sys

import pytest
import yaml

from tests.dags.places import SITE
from tests.fakes.releases import SPEC
from tests.support.paths import REPOSITORY

PROGRAM = """
import gc, sys
from airflow.dag_processing.dagbag import DagBag
from airflow.sdk import DAG

gc.disable()  # a DAG and its tasks refer to each other, so each one that was made is still there
bag = DagBag(sys.argv[1])
assert not bag.import_errors, bag.import_errors
print("made", *sorted(each.dag_id for each in gc.get_objects() if isinstance(each, DAG)))
"""


@pytest.mark.parametrize(
    ("file", "kinds"),
    [
        ("release.py", ("release",)),
        ("rollback.py", ("rollback",)),
        ("drill.py", ("drill",)),
        ("broken_specs.py", ("drill", "release", "rollback")),
    ],
)
def test_a_file_makes_each_of_its_dags_once(file, kinds, tmp_path):
    specs, home = tmp_path / "specs", tmp_path / "home"
    specs.mkdir()
    for name in ("a", "b"):
        (specs / f"{name}.yaml").write_text(yaml.safe_dump({**SPEC, "name": name, "rollout": {"drill": {}}}))
    environment = {
        "PATH": os.environ["PATH"],
        "HOME": str(home),
        "AIRFLOW_HOME": str(home),
        "AIRFLOW__CORE__DAGS_FOLDER": str(REPOSITORY / "dags"),
        "AIRFLOW__CORE__PLUGINS_FOLDER": str(REPOSITORY / "plugins"),
        "AIRFLOW__CORE__LOAD_EXAMPLES": "False",
        "PYTHONPATH": str(REPOSITORY),
        "SLIPWAY_SITE": str(SITE),
        "SLIPWAY_SPECS": str(specs),
    }

    done = subprocess.run(
        [sys.executable, "-c", PROGRAM, str(REPOSITORY / "dags" / file)],
        env=environment,
        cwd=tmp_path,
        capture_output=True,
        text=True,
        check=False,
    )

    assert done.returncode == 0, done.stderr[-3000:]
    assert done.stdout.splitlines()[-1].split() == [
        "made",
        *(f"{kind}__{name}" for kind in kinds for name in ("a", "b")),
    ]
