"""The form of log lines: text, or one JSON object per line with the run, the step and the release."""

import json
import logging
from collections.abc import Mapping
from datetime import UTC, datetime
from typing import Literal, TextIO

from typing_extensions import override

from slipway.tasks.contracts.redaction import redacted

TEXT = "%(asctime)s %(levelname)s %(message)s"


class JsonLines(logging.Formatter):
    """One object per line: time, level, logger, message, and `fields`, which are the same on every line."""

    def __init__(self, fields: Mapping[str, str]) -> None:
        super().__init__()
        self._fields = {name: value for name, value in fields.items() if value}

    @override
    def format(self, record: logging.LogRecord) -> str:
        line = {
            "time": datetime.fromtimestamp(record.created, UTC).isoformat(timespec="milliseconds"),
            "level": record.levelname.lower(),
            "logger": record.name,
            "message": redacted(record.getMessage()),
            **self._fields,
        }
        if record.exc_info:
            line["exception"] = redacted(self.formatException(record.exc_info))
        return json.dumps(line, ensure_ascii=False, default=str)


class StepHandler(logging.StreamHandler[TextIO]):
    """The handler of a step's process, which `configure` replaces."""


def configure(form: Literal["text", "json"], stream: TextIO, fields: Mapping[str, str]) -> None:
    """Write the root logger's lines to `stream` in this form.

    Where another program has set up logging, as with logging.basicConfig, its text is left as it is.
    """
    handler = StepHandler(stream)
    handler.setFormatter(JsonLines(fields) if form == "json" else logging.Formatter(TEXT, datefmt="%H:%M:%S"))
    root = logging.getLogger()
    others = [each for each in root.handlers if not isinstance(each, StepHandler)]
    root.handlers[:] = others if others and form == "text" else [*others, handler]
    if handler in root.handlers:
        root.setLevel(logging.INFO)
