"""Environments that a person would make: an Airflow with the wheel's extra."""

import functools
import sys
from pathlib import Path

import pytest

from tests.local.packaging.conftest import uv
from tests.support.paths import REPOSITORY

PINNED = next(
    line.split()[0].rpartition("==")[2]
    for line in (REPOSITORY / "requirements" / "airflow.in").read_text().splitlines()
    if line.startswith("apache-airflow==")
)
OLDER = ("3.2.2", "3.1.8")
LINEAGE = ("apache-airflow-providers-openlineage>=2,<3",)


@pytest.fixture(scope="session")
def airflow_of(wheel, tmp_path_factory):
    """The interpreter of a fresh environment with a version of Airflow, the wheel with its extra, and further packages."""

    @functools.cache
    def made(version, *more):
        return environment(tmp_path_factory.mktemp("environment"), with_extra(version, wheel, *more))

    return made


def with_extra(version, wheel, *more):
    """What pip is told to install."""
    return f"apache-airflow=={version}", f"{wheel}[airflow]", *more


def environment(folder, requirements) -> Path:
    """Install what pip takes today; return the interpreter."""
    python = folder / "bin" / "python"
    uv("venv", "--quiet", "--python", sys.executable, folder)
    uv("pip", "install", "--quiet", "--python", python, *requirements)
    return python
