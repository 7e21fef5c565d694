"""Every container may write where its program was seen to write, and to nothing else."""

from typing import get_args

import pytest

from slipway.tasks.contracts.fit.step_kinds import STEP_KINDS
from slipway.tasks.contracts.pods.writes import TEMPORARY, WRITES
from slipway.tasks.contracts.step_names import Step
from tests.contracts.recorded import contract

RECORD = contract("written_paths.yaml")
NEEDS_GPUS = {"node", "check-network"}
"""Without several nodes with GPUs, check-network has nothing to do."""
FOLDERS = {**WRITES, **{step: kind.writes for step, kind in STEP_KINDS.items()}}
ALLOWED = {**RECORD["every_container_has"], **RECORD["not_needed"]}


def recorded(program):
    return set(RECORD["programs"][program])


def mounted(program):
    return {folder.path for folder in FOLDERS[program]}


def test_every_program_without_a_gpu_was_traced():
    assert set(RECORD["programs"]) == set(FOLDERS) - NEEDS_GPUS
    assert set(get_args(Step)) - NEEDS_GPUS < set(RECORD["programs"])


@pytest.mark.parametrize("program", RECORD["programs"])
def test_what_a_program_wrote_is_mounted(program):
    assert recorded(program) - mounted(program) <= set(ALLOWED)


@pytest.mark.parametrize("program", RECORD["programs"])
def test_nothing_is_mounted_that_a_program_did_not_write(program):
    assert mounted(program) <= recorded(program)


def test_every_mount_says_why():
    assert all(len(folder.why) > 20 for folders in FOLDERS.values() for folder in folders)


def test_steps_on_gpus_have_shared_memory_beyond_a_containers_own():
    assert "/dev/shm" in {folder.path for folder in STEP_KINDS["quantize"].folders(gpus=2)}
    assert "/dev/shm" not in {folder.path for folder in STEP_KINDS["quantize"].folders(gpus=0)}


def test_triton_finds_the_folder_that_it_asks_for_by_name():
    assert TEMPORARY.path == "/tmp"
    assert TEMPORARY in FOLDERS["assemble"]
    assert TEMPORARY in WRITES["triton"]
