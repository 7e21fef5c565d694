"""Triton model that checks a question and makes tokens of it."""

from functools import partial
from typing import Any

import numpy as np
import triton_python_backend_utils as pb_utils
from generation.grammar.ebnf import Dialect
from generation.model_files.channels import NO_MARKS
from generation.model_files.hf_tokenizer import HuggingFaceTokenizer
from generation.model_files.tool_calls import NO_TOOLS
from generation.requests.conversation import prompt_of
from generation.requests.question import check, job
from generation.service import Readers, Sender, question_of, text_tensor
from generation.settings import read_settings
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
        self._readers = Readers()

    def execute(self, requests: list[Any]) -> None:
        """Take requests; tokens, or a refusal, follow for each."""
        for request in requests:
            sender = Sender(request.get_response_sender(), self._tokenizer)
            self._readers.submit(sender, partial(self._prepare, request, sender))

    def finalize(self) -> None:
        """Finish what waits."""
        self._readers.close()

    def _prepare(self, request: Any, sender: Sender) -> None:
        tokenizer, question = self._tokenizer, question_of(request, Dialect.ALL_OR_NONE)
        check(question, self._limits, tokenizer.longest_token)
        taken = job(question, prompt_of(question, tokenizer), self._limits)
        # a grammar holds there from the first token on
        marks = tokenizer.channels.marks if taken.sampling.thinks and not taken.sampling.controls.grammar else NO_MARKS
        # the engine would find stop words in the thoughts as well; those of the answer are found in its text
        stop_words = question.stop_words if marks == NO_MARKS else ()
        words = [tokenizer.encode_word(word) for word in stop_words]
        bad_words = [ids for word in question.controls.bad_words for ids in tokenizer.encode_bad_word(word)]
        tensors = request_tensors(taken, tokenizer.end_ids, tokenizer.pad_id, words, bad_words)
        outputs = [pb_utils.Tensor(name, value) for name, value in tensors.items()]
        call_format = tokenizer.tool_call_format if question.tools else NO_TOOLS
        thought_marks = pb_utils.Tensor("thought_marks", np.array(marks, dtype=np.int32))
        sender.answer([*outputs, text_tensor("tool_call_format", call_format), thought_marks])
