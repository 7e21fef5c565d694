"""What the models answer to questions, as it arrives, and counted."""

import time
from collections.abc import AsyncGenerator, Callable, Mapping, Sequence
from contextlib import aclosing
from dataclasses import dataclass
from http import HTTPStatus
from typing import Any

from slipway.tasks.contracts.errors import InputError, UnavailableError
from slipway.tasks.contracts.wire.prompt_model import Prompt, prompt_of, with_prompt
from slipway.tasks.serving.openai_api.answers.openai import CANCELLED, Piece, piece
from slipway.tasks.serving.openai_api.generation.catalogue import Models
from slipway.tasks.serving.openai_api.generation.grammars import Grammars
from slipway.tasks.serving.openai_api.generation.inputs import USUAL_BYTES_PER_TOKEN, Question, ServedModel
from slipway.tasks.serving.openai_api.generation.metrics import AnswerMetrics
from slipway.tasks.serving.openai_api.generation.quotas import TokenQuotas
from slipway.tasks.serving.openai_api.generation.turns import Turns

CLIENT_LEFT = 499
"""Counted for a client that left before its answer ended; nginx's number."""


@dataclass(frozen=True)
class Generated:
    """Responses that arrived together. `begins` is the question that they are the first ones to."""

    pieces: Sequence[Piece]
    begins: Question | None = None


@dataclass
class Used:
    """Tokens of an answer: those that the model counts, or about those of the prompt and the pieces until it does.

    `prompt` is about how many the prompt has.
    """

    prompt: int
    told: int = 0
    sent: int = 0

    def add(self, together: Sequence[Piece]) -> None:
        """Take further responses."""
        self.told += sum((each.prompt_tokens or 0) + (each.completion_tokens or 0) for each in together)
        self.sent += sum(max(1, len((each.text + each.thought).encode()) // USUAL_BYTES_PER_TOKEN) for each in together)

    @property
    def tokens(self) -> int:
        """Those that were told; before, what is known without the model."""
        return self.told or self.prompt + self.sent


EVERYBODYS = Turns(1 << 30, 1 << 31)
"""Nobody waits."""


class Generation:
    """Asks Triton's models. `clock` gives seconds from any fixed moment."""

    def __init__(
        self,
        models: Models,
        clock: Callable[[], float] = time.perf_counter,
        quotas: Mapping[str, int] | None = None,
        turns: Turns = EVERYBODYS,
    ) -> None:
        """`quotas` are tokens a minute by name of clients, who take `turns` at the models."""
        self._models, self._clock, self._turns = models, clock, turns
        self._quotas = TokenQuotas(quotas or {}, clock)
        self.counted, self._grammars = AnswerMetrics(), Grammars()

    async def close(self) -> None:
        """End the processes that translate schemas."""
        await self._grammars.close()

    async def answers(
        self, model: ServedModel, questions: Sequence[Question], number: int, client: str = ""
    ) -> AsyncGenerator[Generated, None]:
        """Yield so many answers to each question, one after another; the first responses of each answer say so.

        They are counted as those of `client`.

        Raises:
            ApiError: the client has no tokens left or too many requests here, or a schema cannot be enforced. No
                question was asked then.
            InputError: the model refused a question.
            UnavailableError: there is no answer, or it has no end.
        """
        self._quotas.check(client)
        with self._turns.room(client):
            obeying = [await self._obeying(question) for question in questions]
            for question in [each.again(count) for each in obeying for count in range(number)]:
                begins = True
                async with aclosing(self._timed(model, question, client)) as pieces:
                    async for together in pieces:
                        yield Generated(together, question if begins else None)
                        begins = False

    async def _obeying(self, question: Question) -> Question:
        """The question with the grammar of its schema."""
        if question.schema is None:
            return question
        return question.obeying(await self._grammars.grammar_of(question.schema))

    async def _timed(self, model: ServedModel, question: Question, client: str) -> AsyncGenerator[list[Piece], None]:
        """Yield what `_pieces` does, and count it. Errors before a request reaches the model are not counted."""
        counted, code, before, has_text = self.counted, CLIENT_LEFT, self._clock(), False
        label = self._quotas.label_of(client)
        used = Used(min(question.prompt_tokens, model.max_input_tokens or question.prompt_tokens))
        try:
            async with self._turns.turn(client), aclosing(self._pieces(model, question)) as arriving:
                async for together in arriving:
                    now, texts = self._clock(), sum(bool(each.text or each.thought) for each in together)
                    if texts:
                        count = counted.next_tokens if has_text else counted.first_tokens
                        count(model.name, now - before, texts)
                        before, has_text = now, True
                    counted.count_tokens(model.name, label, together)
                    used.add(together)
                    yield together
            code = int(HTTPStatus.OK)
        except InputError:
            code, used.prompt = int(HTTPStatus.BAD_REQUEST), 0
            raise
        except UnavailableError:
            code, used.prompt = int(HTTPStatus.SERVICE_UNAVAILABLE), 0
            raise
        finally:
            counted.requests[model.name, label, code] += 1
            self._quotas.spend(client, used.tokens)

    async def _pieces(self, model: ServedModel, question: Question) -> AsyncGenerator[list[Piece], None]:
        """Yield the model's responses.

        Raises:
            InputError: the model refused the request.
            UnavailableError: there is no answer, or it has no end.
        """
        ended, inputs, call_format = False, question.inputs, None
        if question.to_render is not None:
            prompt = await self._prompt(model, question.to_render, question.trace_parent)
            inputs, call_format = with_prompt(inputs, prompt), prompt.call_format
        async with aclosing(self._models.responses(model.name, inputs, question.trace_parent)) as arrived:
            async for events in arrived:
                pieces = [
                    piece(each, call_format, question.tools, echoes_tokens=question.echoes_tokens) for each in events
                ]
                reasons = {each.finish_reason for each in pieces if each.finish_reason}
                if CANCELLED in reasons:
                    raise UnavailableError("the model's server ended the answer before it was complete")
                ended = ended or bool(reasons)
                yield pieces
        if not ended:
            raise UnavailableError("the model's server sent no end of the answer")

    async def _prompt(self, model: ServedModel, to_render: Mapping[str, Any], span: str) -> Prompt:
        """The prompt that another model makes of the messages.

        Raises:
            InputError: that model refused them.
            UnavailableError: there is no answer.
        """
        assert model.prompt_model is not None
        found: list[Mapping[str, Any]] = []
        async with aclosing(self._models.responses(model.prompt_model, to_render, span)) as arrived:
            async for events in arrived:
                found += events
        if not found:
            raise UnavailableError("the model's server sent no prompt")
        return prompt_of(found[0])
