"""Log lines as JSON: one object per line, with what the site's log store looks for and without secrets."""

import io
import json
import logging

import pytest

from slipway.tasks.adapters.telemetry import log_lines

TOKEN = "hf_abcdefgh12345678"


@pytest.fixture
def lines():
    root = logging.getLogger()
    handlers, level = root.handlers[:], root.level
    stream = io.StringIO()
    log_lines.configure("json", stream, {"step": "plan", "run": "run-1", "release": ""})
    yield lambda: [json.loads(line) for line in stream.getvalue().splitlines()]
    root.handlers[:] = handlers
    root.setLevel(level)


def test_a_line_has_time_level_message_step_and_run_and_no_empty_field(lines):
    logging.getLogger("tasks").info("downloaded %d files\nof 3", 2)

    [line] = lines()
    assert line.pop("time").endswith("+00:00")
    assert line == {
        "level": "info",
        "logger": "tasks",
        "message": "downloaded 2 files\nof 3",
        "step": "plan",
        "run": "run-1",
    }


def test_tokens_are_redacted_in_messages_and_in_exceptions(lines):
    log = logging.getLogger("tasks")
    try:
        int(TOKEN)
    except ValueError:
        log.exception("with %s", TOKEN)

    [line] = lines()
    assert TOKEN not in json.dumps(line)
    assert "invalid literal for int() with base 10: '(not shown" in line["exception"]
