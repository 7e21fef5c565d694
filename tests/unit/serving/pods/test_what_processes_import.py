"""What the processes of a serving pod import: each replica starts them, and a pod that stops waits for its hook."""

import pytest

from slipway.tasks.pod_processes import PROCESSES
from tests.support.imports import packages_after

HEAVY = {"botocore", "huggingface_hub", "kubernetes", "numpy", "pydantic", "tritonclient", "yaml"}


@pytest.mark.parametrize("name", PROCESSES)
def test_a_process_that_needs_no_site_imports_neither_pydantic_nor_a_client(name):
    assert packages_after(f"from slipway.tasks.command import program; program(['{name}'])") & HEAVY == set()


def test_a_step_imports_the_stores_client_without_boto3s_transfers():
    imported = packages_after("from slipway.tasks.command import program; program(['gate'])")

    assert imported >= {"botocore", "pydantic"}
    assert not imported & {"boto3", "s3transfer"}
