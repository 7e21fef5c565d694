"""`slipway report`: the page of a model as one file."""

import os
import threading

import pytest

from slipway.cli.page_files import write_page
from slipway.cli.runs.report import page
from slipway.tasks.contracts.errors import InputError
from tests.support.waiting import PATIENCE_S
from tests.unit.cli.test_state import LAYOUT, LIVE, Documents, channel, gate_json


def test_it_says_what_is_live_and_that_its_expectations_hold():
    shown = page(Documents(channel(), gate=gate_json()), LAYOUT, "demo", "https://hub.example")

    assert f"{LIVE} is live: all " in shown
    assert 'href="https://hub.example/' in shown


def test_a_model_that_was_never_released_has_no_page():
    with pytest.raises(InputError) as caught:
        page(Documents(), LAYOUT, "demo", "https://hub.example")

    assert "no release of demo was promoted here yet" in caught.value.what


def test_a_page_that_cannot_be_written_is_a_wrong_input(tmp_path):
    with pytest.raises(InputError) as caught:
        write_page(tmp_path / "no-such-folder" / "page.html", "")

    assert "cannot be written" in caught.value.what


def test_a_pipe_gets_a_page_that_is_larger_than_its_buffer(tmp_path):
    pipe, received = tmp_path / "pipe", []
    os.mkfifo(pipe)
    reader = threading.Thread(target=lambda: received.append(pipe.read_bytes()), daemon=True)
    reader.start()
    held = os.open(pipe, os.O_RDWR)  # a reader from the beginning, whenever the thread opens it

    write_page(pipe, "x" * 2**20)
    os.close(held)
    reader.join(PATIENCE_S)

    assert received == [b"x" * 2**20]
