"""Answer and thoughts of a model, told apart by the tokens that it writes between them. Computes only.

Most models that think write `<think>...</think>` before they answer, or go on where their chat template has written
`<think>`; the marks are tokens of their vocabulary. gpt-oss writes several messages, each with a header that names its
channel: `<|channel|>analysis<|message|>...<|end|><|start|>assistant<|channel|>final<|message|>...<|return|>`. Without
the special tokens they would run together.
Format: openai/openai-cookbook, articles/openai-harmony.md, commit 16e9d6f4.
"""

from collections.abc import Callable, Sequence
from dataclasses import dataclass

from generation.runtime import Parts, Split

Decode = Callable[[Sequence[Sequence[int]]], Sequence[str]]

START, CHANNEL, MESSAGE = "<|start|>", "<|channel|>", "<|message|>"
ENDS = ("<|end|>", "<|return|>", "<|call|>")
FINAL, ANALYSIS = "final", "analysis"
THOUGHT_MARKS = (
    ("<think>", "</think>"),
    ("[THINK]", "[/THINK]"),
    ("<seed:think>", "</seed:think>"),
    ("<mm:think>", "</mm:think>"),
    ("<|START_THINKING|>", "<|END_THINKING|>"),
)
"""What begins and ends a thought, by the reasoning parsers of vLLM 0.32.0 that know a pair of tokens (vllm/reasoning):
DeepSeek, Qwen, GLM, Nemotron and others, Mistral, Seed-OSS, MiniMax-M3, Command A. A mark that a model spells in
smaller tokens, as MiniMax-M3 may, is text."""
NO_MARKS = (-1, -1)
"""Stand for those of a request without thoughts."""
LONGEST_TAIL = 4
"""Blank tokens that a chat template may write behind the mark with which it begins a thought; one is usual."""


@dataclass(frozen=True)
class Harmony:
    """Ids of what separates and names channels."""

    start: int
    channel: int
    message: int
    ends: frozenset[int]
    final: tuple[int, ...]
    analysis: tuple[int, ...]

    def answer(self, prompt: Sequence[int]) -> "HarmonyAnswer":
        """The answer to a prompt, which may end anywhere: in a header, as chat templates do, or within a message."""
        edges = {self.start, *self.ends}
        last = next((at for at in range(len(prompt) - 1, -1, -1) if prompt[at] in edges), 0)
        answer = HarmonyAnswer(self)
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
    return Harmony(start, channel, message, frozenset(ends), tuple(encode(FINAL)), tuple(encode(ANALYSIS)))


class HarmonyAnswer:
    """The channels of one answer as it grows. Text outside of any message counts as final."""

    def __init__(self, harmony: Harmony) -> None:
        self._harmony = harmony
        self._in_header = False
        self._name: list[int] | None = None

    def take(self, tokens: Sequence[int]) -> Parts:
        """The tokens of the final channel, and those of the analysis; others are for tools."""
        parts = Parts([], [])
        for token in tokens:
            if self._is_text(token):
                if self._is_named(self._harmony.final, unless_named=True):
                    parts.answer.append(token)
                elif self._is_named(self._harmony.analysis):
                    parts.thought.append(token)
        return parts

    def _is_text(self, token: int) -> bool:
        marks = self._harmony
        if token == marks.start or token in marks.ends:
            self._in_header, self._name = True, None
        elif token == marks.channel:
            self._in_header, self._name = True, []
        elif token == marks.message:
            self._in_header = False
        elif not self._in_header:
            return True
        elif self._name is not None:
            self._name.append(token)
        return False

    def _is_named(self, name: Sequence[int], *, unless_named: bool = False) -> bool:
        """A header may go on behind the channel's name; `unless_named` is for one without a channel."""
        return unless_named if self._name is None else tuple(self._name[: len(name)]) == name


@dataclass(frozen=True)
class Thinking:
    """Ids of what begins and ends a thought, and what tells whether a token is blank."""

    begin: int
    end: int
    is_blank: Callable[[int], bool]

    @classmethod
    def by(cls, begin: int, end: int, decode: Decode) -> "Thinking":
        """The marks, with a way to text."""
        return cls(begin, end, lambda token: decode([[token]])[0].isspace())

    def answer(self, prompt: Sequence[int]) -> "ThinkingAnswer":
        """The answer to a prompt."""
        return ThinkingAnswer(self, thinks=self.is_begun(prompt))

    def is_begun(self, prompt: Sequence[int]) -> bool:
        """Whether the chat template has begun a thought at the end of a prompt."""
        tail = prompt[-1 - LONGEST_TAIL :]
        last = next((at for at in range(len(tail) - 1, -1, -1) if not self.is_blank(tail[at])), None)
        return last is not None and tail[last] == self.begin


def marks_of(template: str) -> tuple[str, str] | None:
    """The marks of thoughts that a chat template has; None without any."""
    return next((marks for marks in THOUGHT_MARKS if any(mark in template for mark in marks)), None)


def thinking_of(
    marks: tuple[str, str] | None,
    id_of: Callable[[str], int | None],
    decode: Decode,
) -> Thinking | None:
    """What tells thoughts apart; None where there are no marks, or where they are no tokens of the vocabulary.

    Args:
        marks: of the chat template.
        id_of: the id of a token, or None.
        decode: texts of tokens, as of a Tokenizer.
    """
    begin, end = (id_of(mark) for mark in marks) if marks else (None, None)
    if begin is None or end is None:
        return None
    return Thinking.by(begin, end, decode)


class ThinkingAnswer:
    """One answer as it grows: a thought, if it begins with one, and what follows.

    Marks elsewhere are text. Blanks between the thought and the answer belong to neither.
    """

    def __init__(self, marks: Thinking, *, thinks: bool) -> None:
        self._marks, self._thinks = marks, thinks
        self._may_think, self._has_thought = True, False

    def take(self, tokens: Sequence[int]) -> Parts:
        """The tokens by part."""
        parts = Parts([], [])
        for token in tokens:
            if self._thinks:
                self._think(token, parts)
            elif self._may_think and token == self._marks.begin and not self._has_thought:
                self._thinks = True
            else:
                self._answer(token, parts)
        return parts

    def _think(self, token: int, parts: Parts) -> None:
        if token == self._marks.end:
            self._thinks, self._has_thought = False, True
        elif token != self._marks.begin:
            parts.thought.append(token)

    def _answer(self, token: int, parts: Parts) -> None:
        self._may_think = self._may_think and self._marks.is_blank(token)
        if not (self._may_think and self._has_thought):
            parts.answer.append(token)


class Channels:
    """What tells the parts of a model's answers apart."""

    def __init__(self, harmony: Harmony | None, thinking: Thinking | None) -> None:
        self._harmony, self._thinking = harmony, thinking

    @property
    def thinking(self) -> Thinking | None:
        """What begins and ends a thought; None where a model has channels or no marks."""
        return None if self._harmony is not None else self._thinking

    @property
    def marks(self) -> tuple[int, int]:
        """Ids of what begins and ends a thought, or NO_MARKS."""
        return NO_MARKS if self._thinking is None else (self._thinking.begin, self._thinking.end)

    def split(self, prompt: Sequence[int], *, thinks: bool) -> Split:
        """Make the split for the answer to one prompt; gpt-oss writes channels also where it is not asked to think."""
        if self._harmony is not None:
            return self._harmony.answer(prompt).take
        return self._thinking.answer(prompt).take if self._thinking is not None and thinks else everything


def everything(tokens: Sequence[int]) -> Parts:
    """A Split of an answer without thoughts."""
    return Parts(list(tokens), [])
