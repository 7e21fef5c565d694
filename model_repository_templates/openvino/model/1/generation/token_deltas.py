"""New tokens of one answer, whether a runtime reports what is new or everything so far. Computes only."""

from collections.abc import Sequence


class TokenDeltas:
    """Learns from the reports themselves which of both they are.

    The first report is the same either way. A later one that begins with all that was seen counts as everything so far.
    """

    def __init__(self) -> None:
        self._seen: list[int] = []
        self._everything: bool | None = None

    def new(self, reported: Sequence[int]) -> list[int]:
        """Those of `reported` that were not given out yet."""
        tokens = list(reported)
        if self._everything is None and self._seen and tokens:
            self._everything = tokens[: len(self._seen)] == self._seen
        new = tokens[len(self._seen) :] if self._everything else tokens
        self._seen.extend(new)
        return new
