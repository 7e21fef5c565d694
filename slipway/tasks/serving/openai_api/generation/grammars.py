"""Grammars of clients' schemas, which other processes translate: the event loop of all requests never waits for one."""

import asyncio
from collections import OrderedDict
from concurrent.futures import ThreadPoolExecutor

from slipway.tasks.adapters.worker import BusyError, LimitError, WorkError, Workers
from slipway.tasks.serving.openai_api.generation.grammar_budget import BUDGET, TRANSLATORS
from slipway.tasks.serving.openai_api.generation.grammar_program import GRAMMAR, REFUSAL
from slipway.tasks.serving.openai_api.http.errors import unavailable
from slipway.tasks.serving.openai_api.requests.formats import Schema

WAIT_S = 15.0
"""How long a request waits for its grammar, those before it included."""
KEPT = 64
"""Verdicts that are remembered; a grammar has up to 100 KiB."""


class Grammars:
    """Grammars by the compact text of their schemas. Used by one event loop."""

    def __init__(self) -> None:
        program = ["-m", "slipway.tasks.serving.openai_api.generation.grammar_program"]
        self._workers = Workers(program, BUDGET, count=TRANSLATORS)
        self._threads = ThreadPoolExecutor(TRANSLATORS)
        self._verdicts: OrderedDict[str, dict[str, str]] = OrderedDict()

    async def grammar_of(self, schema: Schema) -> str:
        """The grammar of answers that obey a schema.

        Raises:
            ApiError: it cannot be enforced, its translation reaches a limit, or too many others are being translated.
        """
        try:
            verdict = self._verdicts.get(schema.text) or await self._translated(schema.text)
        except LimitError as error:
            raise schema.refused(f"its translation {error}. Make it smaller, or simpler.") from error
        except WorkError as error:
            raise schema.refused(f"its translation failed: {error}. Make it simpler.") from error
        except BusyError as error:
            raise unavailable(str(error)) from error
        except TimeoutError as error:
            raise unavailable("too many schemas came at once. Ask again.") from error
        if REFUSAL in verdict:
            raise schema.refused(verdict[REFUSAL])
        return verdict[GRAMMAR]

    async def close(self) -> None:
        """End the processes."""
        self._threads.shutdown(wait=False, cancel_futures=True)
        self._workers.close()

    async def _translated(self, text: str) -> dict[str, str]:
        async with asyncio.timeout(WAIT_S):
            verdict = await asyncio.get_running_loop().run_in_executor(self._threads, self._verdict, text)
        self._verdicts[text] = verdict
        if len(self._verdicts) > KEPT:
            self._verdicts.popitem(last=False)
        return verdict

    def _verdict(self, text: str) -> dict[str, str]:
        """In a thread: another request with the same schema may have been translated while this one waited."""
        verdict: dict[str, str] = self._verdicts.get(text) or self._workers.ask(text)
        return verdict
