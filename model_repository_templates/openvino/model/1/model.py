"""Triton model over OpenVINO GenAI's continuous batching. Everything that is not OpenVINO is in generation/."""

from collections.abc import Callable, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import numpy as np
from engine_process import EngineProcess
from generation.model_files.channels import CHANNEL, Channels, Thinking, harmony_of, thinking_of
from generation.model_files.chat_template import chat_template_of, read_json
from generation.model_files.token_bytes import longest_token
from generation.requests.conversation import NO_MESSAGES
from generation.requests.question import RefusedError
from generation.requests.template_arguments import NO_TEMPLATE
from generation.running.restarts import RestartedEngine
from generation.runtime import Split
from generation.service import Service
from generation.settings import Settings, check_numpy, read_settings
from grammar_judge import GrammarJudge

PROPERTIES = {"INFERENCE_NUM_THREADS": 1, "ENABLE_CPU_PINNING": False}
"""Unless the release asks for more threads: OpenVINO alone would take every CPU of the machine, whatever the pod's
limit. It would also bind them to CPUs, in every process of the machine to the same ones: an engine would wait for its
tokenizer, Triton, or another pod to leave its CPU while others are idle."""


class TritonPythonModel:
    """What Triton's Python backend loads."""

    def initialize(self, args: dict[str, str]) -> None:
        """Load the engine; an error here keeps the model from becoming ready."""
        check_numpy(np.__version__)
        settings = read_settings(args)
        properties = {**PROPERTIES, **settings.document("properties")}
        scheduler = settings.document("scheduler")
        scores = "scores_prompts" in settings.parameters
        with ThreadPoolExecutor(1) as beside:  # the engine loads in its own process, and takes as long
            loading = beside.submit(_tokenizer, settings)
            self._engine = RestartedEngine(
                lambda: EngineProcess(settings.engine, scheduler, properties, scores_prompts=scores)
            )
            tokenizer = loading.result()
        limits = settings.limits(self._engine.max_new_tokens)
        self._judge = GrammarJudge(settings.engine)
        slots = settings.max_batch_size
        self._service = Service(self._engine, tokenizer, limits, slots=slots, grammars=self._judge)
        self._engine.watch(self._service.wake)

    def execute(self, requests: list[Any]) -> None:
        """Take requests; their answers follow."""
        self._service.accept(requests)

    def finalize(self) -> None:
        """Finish what runs."""
        self._service.drain()
        self._engine.close()
        self._judge.close()


def _tokenizer(settings: Settings) -> "OpenVinoTokenizer":
    import openvino_genai as genai

    return OpenVinoTokenizer(
        genai.Tokenizer(str(settings.engine), **PROPERTIES),
        settings.engine,
        chat=settings.apply_chat_template,
        arguments=settings.template_arguments(),
    )


class OpenVinoTokenizer:
    """A Tokenizer: the engine's own, compiled by openvino-tokenizers.

    OpenVINO GenAI renders chat templates in C++, where nothing limits what one may take; the renderer of all other
    engines is used instead.
    """

    def __init__(self, tokenizer: Any, engine: Path, *, chat: bool, arguments: Mapping[str, Any] | None = None) -> None:
        """`arguments` are those of the chat template for every question."""
        self._tokenizer, self._template = tokenizer, chat_template_of(engine, arguments) if chat else None
        self.tool_call_format = self._template.tool_call_format if self._template else ""
        self.longest_token = longest_token(read_json(engine / "tokenizer.json"))
        vocabulary = tokenizer.get_vocab()  # its tokens are bytes
        self.vocabulary_size = 1 + max(vocabulary.values())
        self._channels = self._channels_of(lambda token: vocabulary.get(token.encode()))

    def encode(self, question: str, template_arguments: Mapping[str, Any] | None = None) -> list[int]:
        """Ids as Hugging Face's tokenizer gives them: a chat template writes BOS itself, else the tokenizer adds it."""
        if self._template:
            return self._ids(self._template.wrap(question, template_arguments))
        if template_arguments:
            raise RefusedError(NO_TEMPLATE)
        return self.encode_prompt(question)

    def encode_messages(
        self,
        messages: Sequence[Mapping[str, Any]],
        template_arguments: Mapping[str, Any] | None = None,
        tools: Sequence[Mapping[str, Any]] = (),
    ) -> list[int]:
        """Ids of a conversation by the checkpoint's chat template."""
        if self._template is None:
            raise RefusedError(NO_MESSAGES)
        return self._ids(self._template.render(messages, template_arguments, tools))

    def encode_prompt(self, text: str) -> list[int]:
        """Ids of a text as it is."""
        return self._ids(text, add_special_tokens=True)

    @property
    def thinking(self) -> Thinking | None:
        """As Tokenizer."""
        return self._channels.thinking

    def split(self, prompt: Sequence[int], *, thinks: bool) -> Split:
        """Tell thoughts apart by the channels in which gpt-oss answers, or by the marks that the chat template has."""
        return self._channels.split(prompt, thinks=thinks)

    def decode(self, sequences: Sequence[Sequence[int]]) -> Sequence[str]:
        """Texts of all sequences in one call, which costs as much as one of them."""
        return list(self._tokenizer.decode([list(sequence) for sequence in sequences]))

    def _channels_of(self, id_of: Callable[[str], int | None]) -> Channels:
        has_channels = CHANNEL in (self._tokenizer.chat_template or "")
        marks = self._template.thought_marks if self._template else None
        return Channels(harmony_of(id_of, self._ids) if has_channels else None, thinking_of(marks, id_of, self.decode))

    def _ids(self, text: str, *, add_special_tokens: bool = False) -> list[int]:
        encoded = self._tokenizer.encode(text, add_special_tokens=add_special_tokens)
        return [int(token) for token in encoded.input_ids.data[0]]
