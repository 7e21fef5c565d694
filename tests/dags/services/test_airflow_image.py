"""What images/airflow adds to Airflow, without the image: its files in a folder, on PYTHONPATH as there."""

import os
import shutil
import subprocess
import sys

import pytest

from tests.support.paths import REPOSITORY

IMPORTED = """
import sys
sys.argv = ["airflow", sys.argv[1]]
from airflow import settings
settings.initialize()
print(all(name in sys.modules for name in ("kubernetes.client", "boto3", "slipway.airflow.step_operator")))
"""
FORKED = """
import os, pathlib, sys
sys.argv = ["airflow", "scheduler"]
from airflow import settings
settings.initialize()
import slipway.airflow.runs as runs

def child():
    reader, writer = os.pipe()
    if os.fork() == 0:
        import slipway.airflow.runs as mine
        os.write(writer, str(getattr(mine, "ADDED", "unchanged")).encode())
        os._exit(0)
    os.wait()
    return os.read(reader, 100).decode()

before = child()
with open(runs.__file__, "a") as file:
    file.write("\\nADDED = 'changed'\\n")
print(before, child())
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
                else:
                    shutil.copytree(REPOSITORY / source, tmp_path / target)
    return tmp_path


@pytest.mark.parametrize(("process", "imported"), [("scheduler", "True"), ("dag-processor", "True"), ("jobs", "False")])
def test_a_process_that_forks_imports_before_what_each_task_would_import(app, process, imported):
    home = {"PATH": os.defpath, "HOME": str(app), "AIRFLOW_HOME": str(app / "home"), "PYTHONPATH": str(app)}
    done = subprocess.run(
        [sys.executable, "-c", IMPORTED, process], env=home, cwd=app, capture_output=True, text=True, check=True
    )

    assert done.stdout.split()[-1] == imported


def test_a_task_sees_code_that_changed_after_the_scheduler_imported_it(app):
    home = {"PATH": os.defpath, "HOME": str(app), "AIRFLOW_HOME": str(app / "home"), "PYTHONPATH": str(app)}
    done = subprocess.run([sys.executable, "-c", FORKED], env=home, cwd=app, capture_output=True, text=True, check=True)

    assert done.stdout.split()[-2:] == ["unchanged", "changed"]


def test_a_task_sees_code_that_changed_while_the_scheduler_imported_it(app):
    file = app / "slipway" / "airflow" / "runs.py"
    whole = file.read_text() + "\nADDED = 'changed'\n"
    changes_itself = "import pathlib\npathlib.Path(__file__).write_text({!r})\n"
    file.write_text(file.read_text() + changes_itself.format(whole))
    home = {"PATH": os.defpath, "HOME": str(app), "AIRFLOW_HOME": str(app / "home"), "PYTHONPATH": str(app)}
    done = subprocess.run([sys.executable, "-c", FORKED], env=home, cwd=app, capture_output=True, text=True, check=True)

    assert done.stdout.split()[-2:] == ["changed", "changed"]
