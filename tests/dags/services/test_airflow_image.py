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
FORKED = f"""{IMPORTED}
import os
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
"""Prints IMPORTED's word, and how a child found a module that changed before and after its parent imported it."""


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


def said(app, program, process):
    """The words that a process of Airflow's prints last."""
    home = {"PATH": os.defpath, "HOME": str(app), "AIRFLOW_HOME": str(app / "home"), "PYTHONPATH": str(app)}
    command = [sys.executable, "-c", program, process]
    return subprocess.run(command, env=home, cwd=app, capture_output=True, text=True, check=True).stdout.split()


def test_only_processes_that_fork_import_what_each_task_would_import(app):
    assert said(app, IMPORTED, "jobs")[-1] == "False"


def test_the_next_child_sees_code_that_changed_after_the_dag_processor_imported_it(app):
    assert said(app, FORKED, "dag-processor")[-3:] == ["True", "unchanged", "changed"]


def test_a_task_sees_code_that_changed_while_the_scheduler_imported_it(app):
    file = app / "slipway" / "airflow" / "runs.py"
    whole = file.read_text() + "\nADDED = 'changed'\n"
    changes_itself = "import pathlib\npathlib.Path(__file__).write_text({!r})\n"
    file.write_text(file.read_text() + changes_itself.format(whole))

    assert said(app, FORKED, "scheduler")[-3:] == ["True", "changed", "changed"]
