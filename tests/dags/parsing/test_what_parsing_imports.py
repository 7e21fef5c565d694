"""What parsing the DAGs costs: no client, no toolkit and no network beyond what Airflow and its operator bring themselves.

The scheduler parses these files again and again, and every task does so first.
"""

import json
import os
import subprocess
import sys

import pytest

from tests.dags.places import SITE
from tests.support.paths import REPOSITORY

HEAVY = ("boto3", "botocore", "kubernetes.client", "requests", "httpx", "aiohttp")
HEAVY += ("torch", "transformers", "numpy", "pandas", "huggingface_hub", "great_expectations")
BY_AIRFLOW = {"httpx"}
"""airflow.sdk's own client of the execution API."""
BY_THE_OPERATOR = {"kubernetes.client", "requests", "aiohttp"}
"""KubernetesPodOperator imports the Kubernetes client, which brings the other two. A DAG of releases holds tasks of that
operator, so it cannot be parsed without."""

PROGRAM = """
import importlib.util, json, pathlib, sys
reached = []
WATCHED = ("socket.connect", "socket.getaddrinfo", "socket.gethostbyname", "socket.sendto")
sys.addaudithook(lambda event, args: reached.append(f"{event} {args}") if event in WATCHED else None)
heavy = json.loads(sys.argv[1])
def brought(before):
    return sorted(each for each in heavy if each in sys.modules and each not in before)
def imported(statement):
    before = set(sys.modules)
    exec(statement)
    return brought(before)
told = {
    "airflow": imported("import airflow.sdk; from airflow.dag_processing.dagbag import DagBag"),
    "operator": imported("import airflow.providers.cncf.kubernetes.operators.pod"),
    "files": {},
    "dags": [],
}
for file in sys.argv[2:]:
    reached.clear()
    before = set(sys.modules)
    spec = importlib.util.spec_from_file_location(f"parsed_{pathlib.Path(file).stem}", file)
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    told["files"][file] = {"brought": brought(before), "reached": list(reached)}
    told["dags"] += [name for name, each in vars(module).items() if isinstance(each, sys.modules["airflow.sdk"].DAG)]
print(json.dumps(told))
"""


PLANTED = {"heavy": "import boto3\n", "names": "import socket\nsocket.getaddrinfo('127.0.0.1', 80)\n"}
DAGS = sorted((REPOSITORY / "dags").glob("*.py"))


@pytest.fixture(scope="module")
def parsed(tmp_path_factory):
    """What a process that parses our DAGs, and then two files that do what ours must not, imports and reaches."""
    home = tmp_path_factory.mktemp("home")
    planted = [home / f"{name}.py" for name in PLANTED]
    for file in planted:
        file.write_text(PLANTED[file.stem])
    environment = {
        "PATH": os.environ["PATH"],
        "HOME": str(home),
        "AIRFLOW_HOME": str(home),
        "AIRFLOW__CORE__LOAD_EXAMPLES": "False",
        "PYTHONPATH": str(REPOSITORY),
        "SLIPWAY_SITE": str(SITE),
        "SLIPWAY_SPECS": str(REPOSITORY / "specs"),
    }
    done = subprocess.run(
        [sys.executable, "-c", PROGRAM, json.dumps(HEAVY), *map(str, [*DAGS, *planted])],
        env=environment,
        cwd=home,
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 0, done.stderr[-3000:]
    told = json.loads(done.stdout.strip().splitlines()[-1])
    told["planted"] = {file.stem: told["files"].pop(str(file)) for file in planted}
    return told


def test_parsing_the_dags_imports_no_client_and_no_toolkit_and_reaches_nothing(parsed):
    specs = list((REPOSITORY / "specs").glob("*.yaml"))

    assert len([each for each in parsed["dags"] if each.startswith("release__")]) == len(specs)
    assert len(parsed["files"]) == len(DAGS)
    assert {file: told for file, told in parsed["files"].items() if any(told.values())} == {}
    assert set(parsed["airflow"]) <= BY_AIRFLOW
    assert set(parsed["operator"]) <= BY_THE_OPERATOR


def test_a_file_that_imports_a_client_or_asks_the_network_would_be_found(parsed):
    (reached,) = parsed["planted"]["names"]["reached"]

    assert set(parsed["planted"]["heavy"]["brought"]) == {"boto3", "botocore"}
    assert reached.startswith("socket.getaddrinfo")
