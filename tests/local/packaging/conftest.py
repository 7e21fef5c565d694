"""The wheel, built from a copy of the checkout and installed into an environment that has nothing else."""

import os
import shutil
import subprocess
import sys

import pytest

from tests.fakes.servers.airflow_server import PASSWORD, USER, AirflowServer
from tests.support.paths import REPOSITORY
from tests.support.uv import uv

SOURCES = ("pyproject.toml", "README.md", "LICENSE", "slipway")


@pytest.fixture(scope="session")
def wheel(tmp_path_factory):
    """Built with the setuptools of this environment, so that a build needs no package index."""
    source, built = tmp_path_factory.mktemp("source"), tmp_path_factory.mktemp("wheel")
    for name in SOURCES:
        copy = shutil.copytree if (REPOSITORY / name).is_dir() else shutil.copy
        copy(REPOSITORY / name, source / name)
    uv("build", "--quiet", "--wheel", "--no-build-isolation", "--python", sys.executable, "--out-dir", built, source)
    (path,) = built.glob("*.whl")
    return path


@pytest.fixture(scope="session")
def bare(wheel, tmp_path_factory):
    """The interpreter of an environment that holds the wheel and its declared dependencies, as locked."""
    home = tmp_path_factory.mktemp("bare")
    uv("venv", "--quiet", "--python", sys.executable, home)
    python = home / "bin" / "python"
    lock = REPOSITORY / "requirements" / "local.lock"
    uv("pip", "install", "--quiet", "--python", python, "--constraint", lock, wheel)
    return python


@pytest.fixture
def empty(tmp_path):
    """A working folder and a home that hold nothing."""
    folder = tmp_path / "empty"
    folder.mkdir()
    return folder


@pytest.fixture
def slipway(bare, empty):
    """Run the installed command in an empty folder; variables given by keyword are all that it has of an environment."""

    def run(*arguments, **variables):
        environment = {"PATH": os.defpath, "HOME": str(empty), "COLUMNS": "200"} | variables
        command = [str(bare.with_name("slipway")), *map(str, arguments)]
        return subprocess.run(command, cwd=empty, env=environment, capture_output=True, text=True, check=False)

    return run


@pytest.fixture
def airflow():
    with AirflowServer() as server:
        yield server


@pytest.fixture
def login(airflow):
    return {
        "SLIPWAY_AIRFLOW": airflow.address,
        "SLIPWAY_AIRFLOW_USER": USER,
        "SLIPWAY_AIRFLOW_PASSWORD": PASSWORD,
    }
