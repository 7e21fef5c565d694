"""Tokens of one answer turned into text, cut where it ends. Computes only."""

from collections.abc import Sequence

from generation.answers.text_stream import TextStream
from generation.model_files.channels import everything
from generation.runtime import Split, Tokenizer

STOP, LENGTH = "stop", "length"


class StopWords:
    """Lets text pass up to the first stop word to be complete; of two that end together the longer one counts.

    So the answer does not depend on how it is cut into pieces. What may be the beginning of a word is held back.
    """

    def __init__(self, words: Sequence[str]) -> None:
        self._words, self._held = tuple(words), ""
        self.found = ""
        """The word that ended the text."""

    def advance(self, text: str, *, final: bool) -> str:
        """What of `text`, and of what was held back, is certain; nothing is held back when this is `final`."""
        if self.found:
            return ""
        text, self._held = self._held + text, ""
        found = [(at + len(word), at) for word in self._words if (at := text.find(word)) >= 0]
        if found:
            end, start = min(found)
            self.found = text[start:end]
            return text[:start]
        kept = 0 if final else max((_shared(text, word) for word in self._words), default=0)
        self._held = text[len(text) - kept :]
        return text[: len(text) - kept]


class AnswerText:
    """One answer as it grows. Engines differ in whether they give out the token that ended it: here it never shows."""

    def __init__(
        self,
        tokenizer: Tokenizer,
        end_ids: Sequence[int],
        max_tokens: int,
        stop_words: Sequence[str],
        min_tokens: int = 0,
        split: Split = everything,
    ) -> None:
        """`min_tokens`: stop words count when the answer has so many; `split` tells thoughts apart from it."""
        self._tokenizer, self._end_ids, self._room = tokenizer, frozenset(end_ids), max_tokens
        self._stream, self._stop_words, self._least = TextStream(), StopWords(stop_words), min_tokens
        self._split, self._thought, self._new_thought = split, TextStream(), ""
        self._ended = False
        self.tokens = 0
        """Tokens of the answer and its thoughts so far."""
        self.shown: list[bool] = []
        """Whether each of the tokens that were added last, up to the end of the answer, is a part of it."""

    @property
    def is_over(self) -> bool:
        """Whether no token can add anything, be it that the engine goes on."""
        return self._ended or bool(self._stop_words.found)

    @property
    def stop_word(self) -> str:
        """The stop word that ended the answer; empty where none did."""
        return self._stop_words.found

    def add(self, tokens: Sequence[int]) -> str:
        """The piece of text that is certain now."""
        taken = [] if self.is_over else self._until_the_end(tokens)
        self._room -= len(taken)
        self.tokens += len(taken)
        self.shown = [self._take(token) for token in taken]
        piece = self._advance(final=False)
        for stream in (self._stream, self._thought):
            if stream.is_long:
                stream.cut(self._tokenizer.decode([stream.kept()])[0])
        return piece

    def new_thought(self) -> str:
        """What is certain of the thoughts and was not given before."""
        new, self._new_thought = self._new_thought, ""
        return new

    def _take(self, token: int) -> bool:
        parts = self._split([token])
        self._stream.add(parts.answer)
        self._thought.add(parts.thought)
        return bool(parts.answer)

    def end(self) -> tuple[str, str]:
        """The last piece, and why it is the last: the model's own end or a stop word, or no room for more tokens."""
        piece = self._advance(final=True)
        return piece, STOP if self.is_over or self._room > 0 else LENGTH

    def _advance(self, *, final: bool) -> str:
        if self._thought.window:
            thought = self._tokenizer.decode([self._thought.window])[0]
            self._new_thought += self._thought.advance(thought, final=final)
        text = self._tokenizer.decode([self._stream.window])[0]
        certain = self._stream.advance(text, final=final)
        if self.tokens < self._least and not final:
            return certain
        return self._stop_words.advance(certain, final=final)

    def _until_the_end(self, tokens: Sequence[int]) -> list[int]:
        taken: list[int] = []
        for token in tokens:
            if token in self._end_ids:
                self._ended = True
                break
            taken.append(token)
        return taken


def _shared(text: str, word: str) -> int:
    """How many characters at the end of `text` begin `word`."""
    longest = min(len(text), len(word) - 1)
    return next((size for size in range(longest, 0, -1) if word.startswith(text[len(text) - size :])), 0)
