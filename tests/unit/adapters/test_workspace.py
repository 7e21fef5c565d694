import pytest

from slipway.tasks.contracts.errors import InputError
from slipway.tasks.contracts.stored.release import StepResult
from tests.fakes.releases import release
from tests.fakes.workspace import workspace


def test_work_that_the_disk_cannot_hold_is_refused_with_both_numbers(tmp_path):
    with pytest.raises(InputError) as caught:
        workspace(tmp_path, free_bytes=2**30).require_space(4 * 2**30, "download")

    assert (caught.value.found, caught.value.expected) == ("1.00 GiB free", "4.00 GiB")


def test_work_that_fits_is_not_refused(tmp_path):
    workspace(tmp_path, free_bytes=2**30).require_space(2**30, "download")


def test_a_folder_is_new_and_empty(tmp_path):
    made = workspace(tmp_path).folder("out")

    assert list(made.iterdir()) == []
    assert made.is_relative_to(tmp_path)


def test_the_hub_is_connected_once_and_only_when_it_is_asked(tmp_path):
    connected = []
    space = workspace(tmp_path, connect_hub=lambda: connected.append(1) or object())
    assert connected == []

    assert space.hub is space.hub
    assert connected == [1]


def test_a_result_is_read_as_a_step_wrote_it(tmp_path):
    space, planned = workspace(tmp_path), release()
    result = StepResult(
        step="gate", run="r", outcome="done", summary="fine", started_at=planned.created_at, seconds=1.0
    )
    space.store.put_bytes(space.layout.result("demo", planned.id, "gate"), result.model_dump_json().encode())

    assert space.documents.result(planned, "gate") == result


def test_a_result_that_was_cut_is_an_input_error_that_names_it(tmp_path):
    space, planned = workspace(tmp_path), release()
    uri = space.layout.result("demo", planned.id, "gate")
    space.store.put_bytes(uri, b'{"step": "ga')

    with pytest.raises(InputError) as caught:
        space.documents.result(planned, "gate")

    assert caught.value.what.startswith(f"{uri} is not valid JSON")
