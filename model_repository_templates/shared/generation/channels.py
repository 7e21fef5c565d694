"""Answers in channels, of which a client sees the final one. Computes only.

gpt-oss writes several messages, each with a header that names its channel: `<|channel|>analysis<|message|>...<|end|>
<|start|>assistant<|channel|>final<|message|>...<|return|>`. Without the special tokens they would run together.
Format: openai/openai-cookbook, articles/openai-harmony.md, commit 16e9d6f4.
"""

from collections.abc import Callable, Sequence
from dataclasses import dataclass

START, CHANNEL, MESSAGE = "<|start|>", "<|channel|>", "<|message|>"
ENDS = ("<|end|>", "<|return|>", "<|call|>")
FINAL = "final"


@dataclass(frozen=True)
class Harmony:
    """Ids of what separates and names channels."""

    start: int
    channel: int
    message: int
    ends: frozenset[int]
    final: tuple[int, ...]

    def answer(self, prompt: Sequence[int]) -> "FinalChannel":
        """The answer to a prompt, which may end anywhere: in a header, as chat templates do, or within a message."""
        edges = {self.start, *self.ends}
        last = next((at for at in range(len(prompt) - 1, -1, -1) if prompt[at] in edges), 0)
        answer = FinalChannel(self)
        answer.take(prompt[last:])
        return answer


def harmony_of(id_of: Callable[[str], int | None], encode: Callable[[str], Sequence[int]]) -> Harmony | None:
    """What separates channels in a vocabulary; None where it lacks one of the special tokens.

    Args:
        id_of: the id of a token, or None.
        encode: ids of a text without special tokens.
    """
    marks = [id_of(mark) for mark in (START, CHANNEL, MESSAGE, *ENDS)]
    known = [mark for mark in marks if mark is not None]
    if len(known) < len(marks):
        return None
    start, channel, message, *ends = known
    return Harmony(start, channel, message, frozenset(ends), tuple(encode(FINAL)))


class FinalChannel:
    """The final channel of one answer as it grows. Text outside of any message counts as final."""

    def __init__(self, harmony: Harmony) -> None:
        self._harmony = harmony
        self._in_header, self._is_final = False, True
        self._name: list[int] | None = None

    def take(self, tokens: Sequence[int]) -> list[int]:
        """Those of the tokens that a client sees."""
        return [token for token in tokens if self._shows(token)]

    def _shows(self, token: int) -> bool:
        marks = self._harmony
        if token == marks.start or token in marks.ends:
            self._in_header, self._name = True, None
        elif token == marks.channel:
            self._in_header, self._name = True, []
        elif token == marks.message:
            self._in_header, self._is_final = False, self._names_final()
        elif not self._in_header:
            return self._is_final
        elif self._name is not None:
            self._name.append(token)
        return False

    def _names_final(self) -> bool:
        """A header may go on behind the channel's name; one without a channel belongs to no other."""
        final = self._harmony.final
        return self._name is None or tuple(self._name[: len(final)]) == final
