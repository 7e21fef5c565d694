"""Prints an answer as it arrives, and what it took."""

import time
from collections.abc import Iterable
from dataclasses import dataclass

from slipway.cli.ask.generate import Piece
from slipway.cli.terminal import echo


@dataclass
class PrintedAnswer:
    """An answer as far as it has arrived; complete once `finish_reason` is set or the pieces have ended."""

    text: str = ""
    thought: str = ""
    finish_reason: str = ""
    pieces: int = 0
    tokens: int | None = None
    first_at_s: float | None = None
    last_at_s: float | None = None

    def print(self, arriving: Iterable[Piece], *, stream: bool, thoughts: bool = False) -> None:
        """Print the pieces as they arrive, or together at the end, and a line break.

        What arrived of an answer that breaks off or is interrupted is printed too. With `thoughts`, what the model
        thought comes before the answer, dimmed, with an empty line between them.
        """
        ended = False
        try:
            for piece in arriving:
                begins = not self.text
                self._add(piece)
                if stream:
                    self._print(piece.thought if thoughts else "", piece.text, begins=begins and thoughts)
            ended = True
        finally:
            if not stream:
                self._print(self.thought if thoughts else "", self.text, begins=thoughts)
            if ended or self.text or (thoughts and self.thought):
                echo()

    def measured(self, sent_at_s: float) -> str:
        """One line with the answer's tokens, TTFT and tokens per second.

        TTFT is the time from sending the request to the first text or thought. The rate is (tokens - 1) / time from
        the first to the last, as AIPerf's output token throughput per user; it needs the server's count of tokens and
        two pieces. Without a count, the pieces are counted, each of which holds one token or more.
        """
        amount = f"{self.pieces} pieces" if self.tokens is None else f"{self.tokens} tokens"
        parts = [f"{amount} in {(self.last_at_s or time.monotonic()) - sent_at_s:.2f} s"]
        if self.first_at_s is not None:
            parts.append(f"TTFT {self.first_at_s - sent_at_s:.3f} s")
        if (rate := self._tokens_per_s()) is not None:
            parts.append(f"{rate:.1f} tokens/s")
        return ", ".join([*parts, f"ended by {self.finish_reason or 'the server'}"])

    def _print(self, thought: str, text: str, *, begins: bool) -> None:
        """Print a part of the answer; with `begins`, its text comes after the thoughts, if there were some."""
        if thought:
            echo(thought, nl=False, dim=True)
        if text:
            echo(f"\n\n{text}" if begins and self.thought else text, nl=False)

    def _add(self, piece: Piece) -> None:
        if piece.tokens is not None:
            self.tokens = (self.tokens or 0) + piece.tokens
        self.finish_reason = piece.finish_reason or self.finish_reason
        if piece.text or piece.thought:
            self.text += piece.text
            self.thought += piece.thought
            self.pieces += 1
            self.last_at_s = piece.at_s
            self.first_at_s = piece.at_s if self.first_at_s is None else self.first_at_s

    def _tokens_per_s(self) -> float | None:
        if self.tokens is None or self.first_at_s is None or self.last_at_s is None:
            return None
        seconds = self.last_at_s - self.first_at_s
        return (self.tokens - 1) / seconds if seconds > 0 and self.tokens > 1 else None
