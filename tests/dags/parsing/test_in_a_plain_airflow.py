"""The files of images/airflow in an Airflow that has nothing of ours but them: docs/your-airflow.md offers that way."""

import json
import os
import re
import shutil
import subprocess
import sys
from importlib.metadata import PackageNotFoundError, requires

from packaging.requirements import Requirement

from tests.dags.places import SITE
from tests.support.paths import REPOSITORY

PROGRAM = """
import json, sys
from importlib.metadata import packages_distributions
before = set(sys.modules)
from airflow.dag_processing.dagbag import DagBag
from airflow.plugins_manager import get_plugin_info
bag = DagBag(sys.argv[1])
new = {name.partition(".")[0] for name in set(sys.modules) - before}
known = packages_distributions()
print(json.dumps({
    "errors": bag.import_errors,
    "dags": sorted(bag.dags),
    "plugins": [each["name"] for each in get_plugin_info()],
    "distributions": sorted({each for name in new for each in known.get(name, [])}),
    "files": [m.__file__ for n, m in sys.modules.items() if n.partition(".")[0] in ("dags", "slipway") and m.__file__],
}))
"""
NEEDED = ("apache-airflow", "apache-airflow-providers-cncf-kubernetes", "apache-airflow-providers-amazon")
NEEDED += ("apache-airflow-providers-standard",)


def copied(target):
    """What images/airflow copies, below `target`."""
    text = (REPOSITORY / "images" / "airflow" / "Dockerfile").read_text()
    for line in re.findall(r"^COPY --chown=10001:0 (.+)$", text, re.MULTILINE):
        *sources, place = line.split()
        for source in sources:
            origin, goal = REPOSITORY / source, target / place
            if origin.is_dir():
                shutil.copytree(origin, goal, dirs_exist_ok=True, ignore=shutil.ignore_patterns("__pycache__"))
            else:
                goal.mkdir(parents=True, exist_ok=True)
                shutil.copy(origin, goal)


def closure(roots):
    """Names of distributions that come with `roots`, extras aside."""
    found, todo = set(), [Requirement(each) for each in roots]
    while todo:
        each = todo.pop()
        name = re.sub(r"[-_.]+", "-", each.name).lower()
        if (name, *each.extras) in found:
            continue
        found.add((name, *each.extras))
        try:
            needed = requires(name) or []
        except PackageNotFoundError:
            continue
        for text in needed:
            other = Requirement(text)
            extras = each.extras or {""}
            if other.marker is None or any(other.marker.evaluate({"extra": extra}) for extra in extras):
                todo.append(other)
    return {name for name, *_ in found}


def test_dags_and_plugin_need_only_airflow_its_three_providers_and_what_these_bring(tmp_path):
    app, home = tmp_path / "app", tmp_path / "home"
    copied(app)
    environment = {
        "PATH": os.environ["PATH"],
        "HOME": str(home),
        "AIRFLOW_HOME": str(home),
        "AIRFLOW__CORE__DAGS_FOLDER": str(app / "dags"),
        "AIRFLOW__CORE__PLUGINS_FOLDER": str(app / "plugins"),
        "AIRFLOW__CORE__LOAD_EXAMPLES": "False",
        "AIRFLOW__CORE__DAGBAG_IMPORT_TIMEOUT": "600",  # seconds; a busy machine takes more than the 30 of Airflow
        "PYTHONPATH": str(app),
        "SLIPWAY_SITE": str(SITE),
        "SLIPWAY_SPECS": str(app / "specs"),
    }

    done = subprocess.run(
        [sys.executable, "-c", PROGRAM, str(app / "dags")],
        env=environment,
        cwd=tmp_path,
        capture_output=True,
        text=True,
        check=False,
    )

    assert done.returncode == 0, done.stderr[-3000:]
    found = json.loads(done.stdout.strip().splitlines()[-1])
    assert found["errors"] == {}
    assert "release__demo-llama" in found["dags"]
    assert any("slipway" in name for name in found["plugins"])
    assert all(path.startswith(str(app)) for path in found["files"])
    brought = closure(NEEDED)
    assert {re.sub(r"[-_.]+", "-", each).lower() for each in found["distributions"]} <= brought
