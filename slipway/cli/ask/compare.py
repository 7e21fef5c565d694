"""`slipway compare`: the answers of two servers to the same prompts, side by side."""

import statistics
import threading
from collections.abc import Sequence
from contextlib import suppress
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer
from rich.table import Table

from slipway.cli.arguments import AnswerTimeout, AsJson, Attempts, settings_of
from slipway.cli.ask.batch_files import Prompt, Result, read_prompts
from slipway.cli.ask.comparison_page import Pair, page
from slipway.cli.ask.model_connection import ANSWER_TIMEOUT_S, ModelServers
from slipway.cli.ask.prompt_sender import ATTEMPTS, NoServerError, PromptSender
from slipway.cli.console import console_on
from slipway.cli.exit_codes import REFUSED
from slipway.cli.page_files import write_page
from slipway.cli.terminal import echo
from slipway.tasks.contracts.errors import PipelineError

if TYPE_CHECKING:
    from slipway.cli.json_documents import CompareDocument
    from slipway.cli.settings import Settings

CANDIDATE = "-candidate"
SHOWN_CHARS = 60

Side = Annotated[str, typer.Argument(help="A model, its candidate as NAME-candidate, or NAME@HOST:PORT.")]


def compare(  # noqa: PLR0913, PLR0917 - each is an option of the command
    context: typer.Context,
    a: Side,
    b: Side,
    prompts: Annotated[Path, typer.Argument(help='JSONL: {"prompt": "..."} per line; also id, max_tokens, seed.')],
    html: Annotated[Path | None, typer.Option(metavar="FILE", help="Also write a page with whole answers.")] = None,
    max_tokens: Annotated[
        int, typer.Option(metavar="N", min=1, help="Maximum length of an answer, in tokens, where a prompt has none.")
    ] = 128,
    attempts: Attempts = ATTEMPTS,
    timeout: AnswerTimeout = ANSWER_TIMEOUT_S,
    as_json: AsJson = False,
) -> None:
    """Show the answers of two models, or of a model and its candidate, to the prompts of a file.

    Prompts are sent one after the other, to both sides in turn, so that their times can be compared.
    """
    wanted = read_prompts(prompts)
    settings = settings_of(context)
    senders = [
        PromptSender(name, servers, max_tokens=max_tokens, attempts=attempts, timeout_s=timeout)
        for name, servers in (_servers_of(side, settings) for side in (a, b))
    ]
    pairs = _answered(wanted, senders)
    if as_json:
        echo(document(pairs, (a, b)).model_dump_json(indent=2))
    else:
        _print(pairs, (a, b))
    if html:
        write_page(html, page(pairs, (a, b), summary(pairs, (a, b))))
    if any(isinstance(answer, PipelineError) for pair in pairs for answer in pair.answers):
        raise typer.Exit(REFUSED)


def document(pairs: Sequence[Pair], names: Sequence[str]) -> "CompareDocument":
    """What `slipway compare --json` prints."""
    from slipway.cli.json_documents import Answer, CompareDocument, ComparedPrompt  # noqa: PLC0415 - imports Airflow's client

    def answer(one: Result | PipelineError) -> Answer:
        if isinstance(one, PipelineError):
            return Answer(text=None, error=str(one), first_piece_s=None, seconds=None)
        return Answer(text=one.answer, error=None, first_piece_s=one.first_piece_s, seconds=one.seconds)

    prompts = [
        ComparedPrompt(
            id=pair.prompt.id,
            prompt=pair.prompt.prompt,
            answers=[answer(one) for one in pair.answers],
            same=pair.same,
        )
        for pair in pairs
    ]
    return CompareDocument(sides=list(names), prompts=prompts)


def _servers_of(side: str, settings: "Settings") -> tuple[str, ModelServers]:
    """The model and the servers that one argument names."""
    name, _, host = side.partition("@")
    candidate = name.endswith(CANDIDATE)
    name = name.removesuffix(CANDIDATE)
    api = None if host else settings.kube_api()
    return name, ModelServers(name, api=api, host=host or None, candidate=candidate, api_key=settings.api_key)


def summary(pairs: Sequence[Pair], names: Sequence[str]) -> list[str]:
    """How many answers are the same, and each side's median times."""
    same = sum(pair.same for pair in pairs)
    lines = [f"{same} of {len(pairs)} answers are the same"]
    for number, name in enumerate(names):
        answers = [pair.answers[number] for pair in pairs]
        results = [answer for answer in answers if isinstance(answer, Result)]
        first = [result.first_piece_s for result in results if result.first_piece_s is not None]
        times = [
            f"{what} {statistics.median(values):.3f} s"
            for what, values in (("first piece", first), ("whole answer", [result.seconds for result in results]))
            if values
        ]
        failed = [f"{len(answers) - len(results)} failed"] if len(results) < len(answers) else []
        lines.append(f"{name}: {', '.join([*(f'median {time}' for time in times), *failed])}")
    return lines


def _answered(prompts: Sequence[Prompt], senders: Sequence[PromptSender]) -> list[Pair]:
    pairs = []
    for number, prompt in enumerate(prompts):
        # neither side always goes first
        order = (0, 1) if number % 2 == 0 else (1, 0)
        answers = {side: _answer(senders[side], prompt) for side in order}
        pairs.append(Pair(prompt, (answers[0], answers[1])))
    return pairs


def _answer(sender: PromptSender, prompt: Prompt) -> Result | PipelineError:
    try:
        return sender.answer(prompt, threading.Event())
    except NoServerError as error:
        raise error.error from error
    except PipelineError as error:
        return error


def _print(pairs: Sequence[Pair], names: Sequence[str]) -> None:
    table = Table("prompt", *names, "same", show_lines=True)
    for pair in pairs:
        texts = [_shown(text) for text in (pair.prompt.prompt, *pair.texts)]
        table.add_row(*texts, "yes" if pair.same else "no")
    console = console_on()
    with suppress(BrokenPipeError):
        console.print(table)
        for line in summary(pairs, names):
            console.print(line)


def _shown(text: str) -> str:
    flat = " ".join(text.split())
    return flat if len(flat) <= SHOWN_CHARS else f"{flat[:SHOWN_CHARS]}…"
