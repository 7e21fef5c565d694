"""What a server's log says of why it ended, in the length of a message. Pure."""

import re
from collections.abc import Sequence

QUOTED_CHARS = 256
QUOTED_LINES = 2
ERROR_LINE = re.compile(r"[EF][0-9]{4} |error: ")
"""Glog's severity and date, as Triton 2.51 writes them, and the prefix of its last message."""
NO_GPU = "CudaDriverHelper"
"""Part of the error that Triton writes at every start without a GPU."""


def last_words(lines: Sequence[str]) -> str:
    """The last errors among a log's lines: Triton goes on to print tables after them. Without errors, the log's end."""
    errors = [line for line in lines if ERROR_LINE.match(line) and NO_GPU not in line][-QUOTED_LINES:]
    if errors:
        return " | ".join(line[: QUOTED_CHARS // len(errors)] for line in errors)
    end = " ".join(" ".join(lines).split())
    return end if len(end) <= QUOTED_CHARS else f"...{end[-QUOTED_CHARS:]}"
