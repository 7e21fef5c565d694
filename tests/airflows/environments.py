"""Environments that a person would make: an Airflow with the wheel's extra, and the services that are told of releases."""

import functools
import sys
from pathlib import Path

import pytest

from tests.support.paths import REPOSITORY
from tests.support.uv import uv

PINNED = next(
    line.split()[0].rpartition("==")[2]
    for line in (REPOSITORY / "requirements" / "airflow.in").read_text().splitlines()
    if line.startswith("apache-airflow==")
)
OLDER = ("3.2.2", "3.1.8")
NOTIFIERS = ("apache-airflow-providers-smtp>=3,<4", "apache-airflow-providers-http>=6,<7", "mlflow-skinny>=3,<4")
LINEAGE = ("apache-airflow-providers-openlineage>=2,<3",)
SERVICES = ("mlflow>=3,<4", "aiosmtpd>=1.4,<2")


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


@pytest.fixture(scope="session")
def services(tmp_path_factory):
    """The interpreter of an environment with MLflow's server and an SMTP server, neither of them ours."""
    return environment(tmp_path_factory.mktemp("services"), SERVICES)


def environment(folder, requirements) -> Path:
    """Install what pip takes today; return the interpreter."""
    python = folder / "bin" / "python"
    uv("venv", "--quiet", "--python", sys.executable, folder)
    uv("pip", "install", "--quiet", "--python", python, *requirements)
    return python
