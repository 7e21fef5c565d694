"""What each DAG file makes in a process of its own, as Airflow's dag-processor reads it: none twice."""

import os
import subprocess
import sys

import pytest
import yaml

from tests.dags.places import SITE
from tests.fakes.releases import SPEC
from tests.support.paths import REPOSITORY

OF_A_SPEC = [f"{kind}__{name}" for kind in ("drill", "release", "rollback") for name in ("a", "b")]
FILES = {
    "releases.py": sorted([*OF_A_SPEC, "retention", "remove_failed_pods"]),
    "broken_specs.py": OF_A_SPEC,
}
PROGRAM = """
import gc, os, sys
from airflow.dag_processing.dagbag import DagBag
from airflow.sdk import DAG

gc.disable()  # a DAG and its tasks refer to each other, so each one that was made is still there
for file in sys.argv[2:]:
    if child := os.fork():
        assert os.waitpid(child, 0)[1] == 0, file
        continue
    bag = DagBag(f"{sys.argv[1]}/{file}")
    assert not bag.import_errors, bag.import_errors
    made = sorted(each.dag_id for each in gc.get_objects() if type(each) is DAG)
    print("made", file, *made, flush=True)
    os._exit(0)
"""


@pytest.fixture(scope="module")
def made(tmp_path_factory):
    """The ids of the DAGs that each file makes of two specs."""
    folder = tmp_path_factory.mktemp("files")
    specs, home = folder / "specs", folder / "home"
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
        [sys.executable, "-c", PROGRAM, str(REPOSITORY / "dags"), *FILES],
        env=environment,
        cwd=folder,
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 0, done.stderr[-3000:]
    lines = [line.split() for line in done.stdout.splitlines() if line.startswith("made ")]
    return {file: ids for _, file, *ids in lines}


@pytest.mark.parametrize("file", FILES)
def test_a_file_makes_each_of_its_dags_once(made, file):
    assert made[file] == FILES[file]
