"""An Airflow that has the wheel and nothing else of the project: plugin, provider and DAGs come from site-packages."""

import json
import os
import subprocess

import pytest
import yaml

from tests.fakes.releases import SPEC
from tests.local.packaging.conftest import uv
from tests.support.paths import ENVIRONMENTS, REPOSITORY

DAG_FILE = """\
from slipway.airflow.dags import release_dags

globals().update(release_dags("{specs}"))
"""
PROGRAM = """
import json, sys
from airflow.dag_processing.dagbag import DagBag
from airflow.plugins_manager import get_plugin_info
from airflow.providers_manager import ProvidersManager

bag = DagBag(sys.argv[1])
from slipway.tasks.pages.models import window
from slipway.tasks.pages.templates import render
provider = ProvidersManager().providers["slipway"]
print(json.dumps({
    "dags": sorted(bag.dags),
    "errors": bag.import_errors,
    "page": render("models.html.j2", window=window([], 1), rows=[]),
    "plugins": [each["name"] for each in get_plugin_info()],
    "provider": [provider.version, provider.data["name"]],
    "own": sorted({module.__file__ for name, module in sys.modules.items() if name.split(".")[0] == "slipway"}),
}))
"""


@pytest.fixture(scope="module")
def found(wheel, tmp_path_factory):
    """What the pinned Airflow makes of the wheel and a DAG file of one's own."""
    folder = tmp_path_factory.mktemp("airflow")
    installed, dags, specs = folder / "site-packages", folder / "dags", folder / "specs"
    uv("pip", "install", "--quiet", "--no-deps", "--target", installed, wheel)
    for made in (dags, specs):
        made.mkdir()
    (specs / "demo.yaml").write_text(yaml.safe_dump(SPEC))
    (dags / "slipway_dags.py").write_text(DAG_FILE.format(specs=specs))
    environment = {
        "PATH": os.defpath,
        "HOME": str(folder),
        "AIRFLOW_HOME": str(folder / "airflow"),
        "AIRFLOW__CORE__LOAD_EXAMPLES": "False",
        "PYTHONPATH": str(installed),
        "SLIPWAY_SITE": str(REPOSITORY / "sites" / "local.yaml"),
    }
    done = subprocess.run(
        [ENVIRONMENTS / "airflow" / "bin" / "python", "-c", PROGRAM, dags],
        env=environment,
        cwd=folder,
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 0, done.stderr[-3000:]
    return json.loads(done.stdout.splitlines()[-1]) | {"installed": str(installed)}


def test_a_dag_file_of_three_lines_has_the_dags_of_every_spec_and_of_the_site(found):
    assert (found["dags"], found["errors"]) == (
        ["release__demo", "remove_failed_pods", "retention", "rollback__demo"],
        {},
    )
    assert [file for file in found["own"] if not file.startswith(found["installed"])] == []


def test_airflow_lists_the_plugin_and_the_provider_and_finds_the_page(found):
    assert "slipway" in found["plugins"]
    assert "no model that you may see" in found["page"]
    assert found["provider"] == ["0.1.0", "Slipway"]
