"""A contract's validator is built when it is first used; one that cannot be built is found here, and not by a user."""

import pkgutil
import subprocess
import sys
from importlib import import_module

import pytest

from slipway import cli
from slipway.tasks import contracts, retention
from slipway.tasks.contracts.base import Contract
from tests.support.paths import REPOSITORY

THREADS = """
import sys, threading
from concurrent.futures import ThreadPoolExecutor
from slipway.tasks.contracts.spec.spec import ReleaseSpec
from tests.fakes.releases import SPEC

sys.setswitchinterval(1e-6)
together = threading.Barrier(16)

def read(_):
    together.wait()
    return ReleaseSpec.model_validate(SPEC).name

assert not ReleaseSpec.__pydantic_complete__
with ThreadPoolExecutor(16) as threads:
    assert set(threads.map(read, range(16))) == {SPEC["name"]}
"""


def below(model):
    return {model}.union(*map(below, model.__subclasses__()))


for package in (contracts, retention, cli):
    for module in pkgutil.walk_packages(package.__path__, f"{package.__name__}."):
        import_module(module.name)
CONTRACTS = sorted(
    (each for each in below(Contract) if each.__module__.startswith("slipway.")), key=lambda each: each.__qualname__
)


def test_there_are_contracts():
    assert len(CONTRACTS) > 100


@pytest.mark.parametrize("model", CONTRACTS, ids=lambda each: each.__qualname__)
def test_its_validator_and_its_json_schema_can_be_made(model):
    model.model_rebuild(force=True)

    assert model.__pydantic_complete__
    assert model.model_json_schema()["type"] == "object"


def test_threads_may_be_the_first_to_use_it_together():
    """pydantic 2.12.5 failed here in 3 of 25 runs, and 2.11.3 in most (pydantic/pydantic#13419)."""
    done = subprocess.run([sys.executable, "-c", THREADS], cwd=REPOSITORY, capture_output=True, text=True, check=False)

    assert done.returncode == 0, done.stderr
