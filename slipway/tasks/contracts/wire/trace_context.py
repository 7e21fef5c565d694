"""The identity of a run's trace, which follows from the run alone: no state passes between its pods. Pure.

W3C Trace Context, https://www.w3.org/TR/trace-context/#traceparent-header, version 00.
"""

import hashlib
import re

TRACEPARENT = "TRACEPARENT"
"""Variable of a step's process, and header of a request, whose case does not matter."""
PATTERN = re.compile(r"00-(?!0{32})[0-9a-f]{32}-(?!0{16})[0-9a-f]{16}-[0-9a-f]{2}")


def trace_parent(model: str, run: str) -> str:
    """The context that every span of a model's run has in common.

    Args:
        model: name of the model.
        run: identity of the run, as in object names.
    """
    digest = hashlib.sha256(f"{model}\n{run}".encode()).hexdigest()
    return f"00-{digest[:32]}-{digest[32:48]}-01"


def is_trace_parent(text: str) -> bool:
    """Whether `text` is a context that can be continued."""
    return PATTERN.fullmatch(text) is not None
