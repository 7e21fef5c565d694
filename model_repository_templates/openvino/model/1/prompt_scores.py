"""Log-probabilities of a prompt's tokens, and of the token behind it, from the model itself.

ContinuousBatchingPipeline reports the chosen token alone (`echo` of OpenVINO GenAI 2026.4), and of a prompt whose
beginning is cached, nothing. So the model is compiled a second time, without the pipeline.
"""

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt
from generation.runtime import TokenLogprob

MODEL = "openvino_model.xml"
PART = 64
"""Tokens that are read at a time: other answers wait so long, and logits take so much memory."""


class PromptScorer:
    """The model for one prompt at a time."""

    def __init__(self, engine: Path, properties: Mapping[str, Any]) -> None:
        """Load it."""
        import openvino as ov

        self._model = ov.Core().compile_model(engine / MODEL, "CPU", dict(properties))

    def begin(self, prompt: Sequence[int], alternatives: int) -> "PromptScores":
        """The scores of a prompt, of which nothing has been read."""
        return PromptScores(self._model, prompt, alternatives)


class PromptScores:
    """Grows by a part of the prompt at a time."""

    def __init__(self, model: Any, prompt: Sequence[int], alternatives: int) -> None:
        self.prompt, self._alternatives = prompt, alternatives
        self.found = [TokenLogprob(prompt[0], None)]
        """The scores of the tokens that have been read, and of the next one."""
        self._request: Any = None
        self._model, self._read = model, 0
        self._last: npt.NDArray[np.float64] = np.empty(0)

    def advance(self) -> bool:
        """Read the next part; whether that was the last one."""
        if self._request is None:
            self._request = self._model.create_infer_request()
        part = self.prompt[self._read : self._read + PART]
        rows = self._log_probabilities(part)
        self._read += len(part)
        following = self.prompt[self._read - len(part) + 1 : self._read + 1]
        self.found += [self._entry(row, token) for row, token in zip(rows, following, strict=False)]
        self._last = rows[-1]
        if self._read < len(self.prompt):
            return False
        self._request = None
        return True

    def next(self, token: int) -> TokenLogprob:
        """That of a token behind the prompt."""
        return self._entry(self._last, token)

    def _log_probabilities(self, part: Sequence[int]) -> npt.NDArray[np.float64]:
        """Return log-probabilities of shape [tokens of the part, vocabulary]."""
        end = self._read + len(part)
        given = {
            "input_ids": np.array([part], dtype=np.int64),
            "attention_mask": np.ones((1, end), dtype=np.int64),
            "position_ids": np.arange(self._read, end, dtype=np.int64)[None],
            "beam_idx": np.zeros(1, dtype=np.int32),
        }
        names = {name for each in self._model.inputs for name in each.names}
        answered = self._request.infer({name: value for name, value in given.items() if name in names})
        logits = np.asarray(answered["logits"][0], dtype=np.float64)
        logits -= logits.max(axis=-1, keepdims=True)
        found: npt.NDArray[np.float64] = logits - np.log(np.exp(logits).sum(axis=-1, keepdims=True))
        return found

    def _entry(self, row: npt.NDArray[np.float64], token: int) -> TokenLogprob:
        likeliest = _likeliest(row, self._alternatives) if self._alternatives else ()
        return TokenLogprob(token, float(row[token]), tuple((int(each), float(row[each])) for each in likeliest))


def _likeliest(row: npt.NDArray[np.float64], count: int) -> npt.NDArray[np.intp]:
    """The likeliest tokens, of equal ones the first; to sort the whole vocabulary would take ten times as long."""
    at = max(0, len(row) - count)
    candidates = np.flatnonzero(row >= np.partition(row, at)[at])
    found: npt.NDArray[np.intp] = candidates[np.argsort(-row[candidates], kind="stable")[:count]]
    return found
