"""What images/airflow adds to Airflow, without the image: its files in a folder, on PYTHONPATH as there."""

import os
import shutil
import subprocess
import sys

import pytest

from tests.dags.conftest import REPOSITORY

IMPORTED = """
import sys
sys.argv = ["airflow", sys.argv[1]]
from airflow import settings
settings.initialize()
print("kubernetes.client" in sys.modules and "boto3" in sys.modules)
"""


@pytest.fixture
def app(tmp_path):
    """The folder /app of the image, by the COPY lines of its Dockerfile."""
    for line in (REPOSITORY / "images" / "airflow" / "Dockerfile").read_text().splitlines():
        if line.startswith("COPY --chown"):
            *sources, target = line.split()[2:]
            for source in sources:
                if (REPOSITORY / source).is_file():
                    (tmp_path / target).mkdir(exist_ok=True)
                    shutil.copy(REPOSITORY / source, tmp_path / target)
    return tmp_path


@pytest.mark.parametrize(("process", "imported"), [("scheduler", "True"), ("dag-processor", "True"), ("jobs", "False")])
def test_a_process_that_forks_imports_before_what_each_task_would_import(app, process, imported):
    home = {"PATH": os.defpath, "HOME": str(app), "AIRFLOW_HOME": str(app / "home"), "PYTHONPATH": str(app)}
    done = subprocess.run(
        [sys.executable, "-c", IMPORTED, process], env=home, cwd=app, capture_output=True, text=True, check=True
    )

    assert done.stdout.split()[-1] == imported
