"""Triton model that makes text of a whole answer's tokens."""

from typing import Any

import triton_python_backend_utils as pb_utils
from generation.answers.answer_text import AnswerText
from generation.model_files.hf_tokenizer import HuggingFaceTokenizer
from generation.service import text_tensor
from generation.settings import engine_of


class TritonPythonModel:
    """What Triton's Python backend loads."""

    def initialize(self, args: dict[str, str]) -> None:
        """Load the tokenizer; an error here keeps the model from becoming ready."""
        self._tokenizer = HuggingFaceTokenizer(engine_of(args), chat=False)

    def execute(self, requests: list[Any]) -> list[Any]:
        """A text for each request."""
        return [self._told(request) for request in requests]

    def _told(self, request: Any) -> Any:
        ids, lengths = (
            pb_utils.get_input_tensor_by_name(request, name).as_numpy() for name in ("output_ids", "sequence_length")
        )
        tokens = ids[0, 0, : lengths[0, 0]].tolist()
        answer = AnswerText(self._tokenizer, self._tokenizer.end_ids, len(tokens), ())
        return pb_utils.InferenceResponse([text_tensor("text_output", answer.add(tokens) + answer.end()[0])])
