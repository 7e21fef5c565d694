"""Triton model that renders the chat template for vLLM, which takes a prompt as a text."""

from functools import partial
from typing import Any

import numpy as np
import triton_python_backend_utils as pb_utils
from generation.hf_tokenizer import HuggingFaceTokenizer
from generation.question import check, job
from generation.service import Readers, Sender, question_of, text_tensor
from generation.settings import read_settings
from generation.text_prompt import TextPrompts
from generation.tool_calls import NO_TOOLS


class TritonPythonModel:
    """What Triton's Python backend loads."""

    def initialize(self, args: dict[str, str]) -> None:
        """Load the tokenizer; an error here keeps the model from becoming ready."""
        settings = read_settings(args)
        self._tokenizer = HuggingFaceTokenizer(
            settings.engine, chat=settings.apply_chat_template, arguments=settings.template_arguments()
        )
        self._prompts = TextPrompts(self._tokenizer, as_written="tokenized_as_written" in settings.parameters)
        self._limits = settings.limits(self._tokenizer.default_max_tokens or settings.max_sequence_tokens)
        self._readers = Readers()

    def execute(self, requests: list[Any]) -> None:
        """Take requests; a prompt, or a refusal, follows for each."""
        for request in requests:
            sender = Sender(request.get_response_sender(), self._tokenizer)
            self._readers.submit(sender, partial(self._prepare, request, sender))

    def finalize(self) -> None:
        """Finish what waits."""
        self._readers.close()

    def _prepare(self, request: Any, sender: Sender) -> None:
        question = question_of(request)
        check(question, self._limits, self._tokenizer.longest_token)
        text, tokens = self._prompts.prompt(question)
        taken = job(question, tokens, self._limits)
        call_format = self._tokenizer.tool_call_format if question.tools else NO_TOOLS
        sender.answer(
            [
                text_tensor("prompt", text),
                _count("prompt_tokens", len(tokens)),
                _count("max_tokens", taken.sampling.max_tokens),
                text_tensor("tool_call_format", call_format),
            ]
        )


def _count(name: str, value: int) -> Any:
    return pb_utils.Tensor(name, np.array([value], dtype=np.int32))
