"""`slipway batch`: answers every prompt of a file. A batch that was stopped goes on where it was."""

import math
import threading
import time
from collections.abc import Sequence
from pathlib import Path
from queue import Empty, SimpleQueue
from typing import Annotated

import typer

from slipway.cli.arguments import AnswerTimeout, Attempts, Name, finite, settings_of
from slipway.cli.ask.batch_files import Prompt, ResultsFile, read_prompts
from slipway.cli.ask.model_connection import ANSWER_TIMEOUT_S, ModelServers
from slipway.cli.ask.prompt_sender import ATTEMPTS, NoServerError, PromptSender
from slipway.cli.error_text import print_error
from slipway.cli.exit_codes import INTERRUPTED, REFUSED
from slipway.cli.terminal import echo
from slipway.tasks.contracts.errors import PipelineError

PROGRESS_EVERY_S = 5.0
LOOK_EVERY_S = 0.1


def batch(  # noqa: PLR0913, PLR0917 - each is an option of the command
    context: typer.Context,
    name: Name,
    prompts: Annotated[Path, typer.Argument(help='JSONL: {"prompt": "..."} per line; also id, max_tokens, seed.')],
    results: Annotated[Path, typer.Option("--results", "-o", metavar="FILE", help="JSONL that answers are added to.")],
    candidate: Annotated[
        bool, typer.Option("--candidate", help="Use the candidate instead of the live release.")
    ] = False,
    max_tokens: Annotated[
        int, typer.Option(metavar="N", min=1, help="Maximum length of an answer, in tokens, where a prompt has none.")
    ] = 128,
    concurrency: Annotated[int, typer.Option(metavar="N", min=1, max=512, help="Prompts in flight at once.")] = 8,
    rate: Annotated[
        float | None, typer.Option(metavar="N", min=0.001, callback=finite, help="Maximum prompts started per second.")
    ] = None,
    attempts: Attempts = ATTEMPTS,
    timeout: AnswerTimeout = ANSWER_TIMEOUT_S,
    host: Annotated[
        str | None,
        typer.Option(metavar="HOST[:PORT]", help="Send to this HTTP port of Triton, without using the cluster."),
    ] = None,
) -> None:
    """Answer every prompt of a file.

    A line is an object with `prompt` and, if need be, id, max_tokens, temperature, seed, lora and chat_template_kwargs.
    A result has id (or the line's number), answer, finish_reason, first_piece_s and seconds.

    Each answer is added to the results as soon as it is complete. Run the same command again to go on after an
    interruption or to send failed prompts again: prompts that have a result are not sent twice.
    """
    wanted = read_prompts(prompts)
    with ResultsFile(results) as file:
        left = file.unanswered(wanted, max_tokens)
        settings = settings_of(context)
        api = None if host or not left else settings.kube_api()
        servers = ModelServers(name, api=api, host=host, candidate=candidate, api_key=settings.api_key)
        sender = PromptSender(name, servers, max_tokens=max_tokens, attempts=attempts, timeout_s=timeout)
        running = _Batch(sender, file, left, done=len(wanted) - len(left), rate=rate)
        code = running.run(min(concurrency, len(left)))
    raise typer.Exit(code)


class Pace:
    """Starts at most `rate` prompts per second, evenly. Safe to use from several threads."""

    def __init__(self, rate: float | None) -> None:
        self._interval_s = 1 / rate if rate else 0.0
        self._taking, self._next_s = threading.Lock(), -math.inf

    def wait_s(self, now_s: float) -> float:
        """How long the next prompt waits before it starts. Each call is for another prompt."""
        with self._taking:
            start_s = max(self._next_s, now_s)
            self._next_s = start_s + self._interval_s
        return start_s - now_s


class _Batch:
    """The threads that send prompts, and what became of them."""

    def __init__(
        self, sender: PromptSender, results: ResultsFile, prompts: Sequence[Prompt], *, done: int, rate: float | None
    ) -> None:
        self._sender, self._results, self._pace = sender, results, Pace(rate)
        self._waiting: SimpleQueue[Prompt] = SimpleQueue()
        for prompt in prompts:
            self._waiting.put(prompt)
        self._total, self._before = done + len(prompts), done
        self._stop, self._counting = threading.Event(), threading.Lock()
        self._answered, self._failed = 0, 0
        self._broken: Exception | None = None

    def run(self, threads: int) -> int:
        """Send every prompt; the exit code.

        Raises:
            PipelineError: no prompt can be answered.
        """
        began = time.monotonic()
        if self._before:
            self._say(f"{self._before} of {self._total} prompts have a result already")
        # an interrupted command ends at once, whatever its threads wait for
        workers = [threading.Thread(target=self._work, daemon=True) for _ in range(threads)]
        for worker in workers:
            worker.start()
        try:
            self._watch(workers)
        except KeyboardInterrupt:
            self._say(f"interrupted: {self._state()}; run the same command again to go on")
            return INTERRUPTED
        finally:
            self._stop.set()
        if self._broken:
            raise self._broken
        self._say(f"{self._state()} in {time.monotonic() - began:.1f} s")
        return REFUSED if self._failed else 0

    def _watch(self, workers: Sequence[threading.Thread]) -> None:
        """Report progress until every thread has ended, or nothing can be answered."""
        report_at_s = time.monotonic() + PROGRESS_EVERY_S
        for worker in workers:
            while worker.is_alive() and self._broken is None:
                worker.join(LOOK_EVERY_S)
                if time.monotonic() >= report_at_s:
                    self._say(self._state())
                    report_at_s += PROGRESS_EVERY_S

    def _work(self) -> None:
        try:
            while not self._stop.is_set():
                prompt = self._waiting.get_nowait()
                if self._stop.wait(self._pace.wait_s(time.monotonic())):
                    return
                self._send(prompt)
        except Empty:
            return
        except NoServerError as error:
            self._broken = error.error
        except Exception as error:  # noqa: BLE001 - the command's own thread raises it
            self._broken = error

    def _send(self, prompt: Prompt) -> None:
        try:
            result = self._sender.answer(prompt, self._stop)
        except PipelineError as error:
            with self._counting:
                self._failed += 1
            print_error(error, f"{prompt.id}: ")
            return
        self._results.append(result)
        with self._counting:
            self._answered += 1

    def _state(self) -> str:
        failed = f", {self._failed} failed" if self._failed else ""
        return f"{self._before + self._answered} of {self._total} prompts answered{failed}"

    def _say(self, text: str) -> None:
        echo(text, err=True)
