"""Triton model that checks a question and makes tokens of it."""

from typing import Any

import triton_python_backend_utils as pb_utils
from generation.conversation import prompt_of
from generation.hf_tokenizer import HuggingFaceTokenizer
from generation.question import RefusedError, check, job
from generation.service import question_of, text_tensor
from generation.settings import read_settings
from generation.tool_calls import NO_TOOLS
from request_tensors import request_tensors


class TritonPythonModel:
    """What Triton's Python backend loads."""

    def initialize(self, args: dict[str, str]) -> None:
        """Load the tokenizer; an error here keeps the model from becoming ready."""
        settings = read_settings(args)
        self._tokenizer = HuggingFaceTokenizer(
            settings.engine, chat=settings.apply_chat_template, arguments=settings.template_arguments()
        )
        self._limits = settings.limits(self._tokenizer.default_max_tokens or settings.max_sequence_tokens)

    def execute(self, requests: list[Any]) -> list[Any]:
        """Tokens, or a refusal, for each request."""
        return [self._prepared(request) for request in requests]

    def _prepared(self, request: Any) -> Any:
        tokenizer = self._tokenizer
        try:
            question = question_of(request)
            check(question, self._limits, tokenizer.longest_token)
            taken = job(question, prompt_of(question, tokenizer), self._limits)
        except RefusedError as error:
            return pb_utils.InferenceResponse(error=pb_utils.TritonError(str(error), pb_utils.TritonError.INVALID_ARG))
        words = [tokenizer.encode_word(word) for word in question.stop_words]
        bad_words = [ids for word in question.controls.bad_words for ids in tokenizer.encode_bad_word(word)]
        tensors = request_tensors(taken, tokenizer.end_ids, tokenizer.pad_id, words, bad_words)
        outputs = [pb_utils.Tensor(name, value) for name, value in tensors.items()]
        call_format = tokenizer.tool_call_format if question.tools else NO_TOOLS
        return pb_utils.InferenceResponse([*outputs, text_tensor("tool_call_format", call_format)])
