"""`slipway ask`: sends a prompt or a conversation to a model through its Service, from inside or outside the cluster.

Nothing here imports the Kubernetes client, gRPC or numpy, which take longer than the first token of an answer may.
"""

import sys
from collections.abc import Sequence
from contextlib import closing, suppress
from functools import partial
from pathlib import Path
from typing import Annotated, Any

import typer

from slipway.cli.arguments import AnswerTimeout, Name, finite, settings_of
from slipway.cli.ask.conversation import Conversation, is_on_terminal
from slipway.cli.ask.generate import GenerateClient
from slipway.cli.ask.model_connection import ANSWER_TIMEOUT_S, ModelServers
from slipway.cli.ask.printed_answer import PrintedAnswer
from slipway.cli.ask.prompt_inputs import Message, Sampling, check_takes_messages, prompt_inputs
from slipway.cli.terminal import echo
from slipway.tasks.contracts.base import parse_json
from slipway.tasks.contracts.errors import InputError, UnavailableError

LOOK_TIMEOUT_S = 10.0
STDIN = "-"
MAX_INPUT_BYTES = 64 << 20
SAMPLING = "How to answer (a model that does not support an option refuses it by name)"


def ask(  # noqa: PLR0913, PLR0917 - an argument for each option of the command
    context: typer.Context,
    name: Name,
    question: Annotated[
        str | None,
        typer.Argument(help="The prompt. Without one: a conversation on a terminal, otherwise the prompt from stdin."),
    ] = None,
    candidate: Annotated[
        bool, typer.Option("--candidate", help="Use the candidate instead of the live release.")
    ] = False,
    stream: Annotated[bool, typer.Option("--stream/--no-stream", help="Print the answer as it arrives.")] = True,
    stats: Annotated[
        bool | None,
        typer.Option(
            "--stats/--quiet",
            help="Whether to print the tokens, TTFT and tokens/s on stderr; default: if stdout is a terminal.",
        ),
    ] = None,
    thoughts: Annotated[
        bool | None,
        typer.Option(
            "--thoughts/--no-thoughts",
            help="Whether to print what a model thinks before it answers; default: if stdout is a terminal.",
        ),
    ] = None,
    system: Annotated[str | None, typer.Option(metavar="TEXT", help="System prompt.", rich_help_panel=SAMPLING)] = None,
    messages: Annotated[
        Path | None,
        typer.Option(
            metavar="FILE",
            help='JSON list of {"role": ..., "content": ...}, before the prompt if there is one; - reads stdin.',
        ),
    ] = None,
    temperature: Annotated[
        float,
        typer.Option(
            metavar="T",
            min=0,
            callback=finite,
            help="0 chooses the most probable token each time.",
            rich_help_panel=SAMPLING,
        ),
    ] = 0.0,
    top_p: Annotated[
        float | None,
        typer.Option(
            metavar="P",
            min=0,
            max=1,
            callback=finite,
            help="Choose from the most probable tokens with this total.",
            rich_help_panel=SAMPLING,
        ),
    ] = None,
    seed: Annotated[
        int | None,
        typer.Option(metavar="N", min=0, max=2**63 - 1, help="Makes an answer repeatable.", rich_help_panel=SAMPLING),
    ] = None,
    stop: Annotated[
        list[str] | None,
        typer.Option(metavar="TEXT", help="Ends the answer before this text; repeatable.", rich_help_panel=SAMPLING),
    ] = None,
    max_tokens: Annotated[
        int,
        typer.Option(metavar="N", min=1, help="Maximum length of an answer, in tokens.", rich_help_panel=SAMPLING),
    ] = 128,
    lora: Annotated[
        str | None,
        typer.Option(
            "--lora", metavar="ADAPTER", help="Answer with this adapter of the release.", rich_help_panel=SAMPLING
        ),
    ] = None,
    template_arguments: Annotated[
        str | None,
        typer.Option(
            "--chat-template-kwargs",
            metavar="JSON",
            help="Override the chat template's arguments of the release.",
            rich_help_panel=SAMPLING,
        ),
    ] = None,
    timeout: AnswerTimeout = ANSWER_TIMEOUT_S,
    host: Annotated[
        str | None,
        typer.Option(metavar="HOST[:PORT]", help="Send to this HTTP port of Triton, without using the cluster."),
    ] = None,
) -> None:
    """Send a prompt to a model through its Service, or hold a conversation with it.

    Uses the Service's external address if it has one. Otherwise the Kubernetes API forwards a port of a ready pod,
    which needs the Role slipway-user.

    TTFT is the time from sending the request to the first text of the answer or of its thoughts. tokens/s is
    (tokens - 1) / time from the first text to the last; tokens are the server's own count.
    """
    arguments = _object("--chat-template-kwargs", template_arguments) if template_arguments else {}
    sampling = Sampling(max_tokens, temperature, seed, top_p, tuple(stop or ()), arguments, lora)
    history = _messages(messages) if messages else []
    if question is None and not history and not is_on_terminal():
        question = _prompt_of_stdin()
    settings = settings_of(context)
    api = None if host else settings.kube_api()
    servers = ModelServers(name, api=api, host=host, candidate=candidate, api_key=settings.api_key)
    is_shown = sys.stdout.isatty()
    asking = _Asking(
        name,
        servers,
        sampling,
        timeout,
        stream=stream,
        stats=is_shown if stats is None else stats,
        thoughts=is_shown if thoughts is None else thoughts,
    )
    if question is None and not history:
        asking.check_takes_messages()
        Conversation(asking.answer, system).run()
        return
    asking.answer(PrintedAnswer(), _prompt(question, system, history))


class _Asking:
    """Sends prompts to one model and prints the answers."""

    def __init__(
        self,
        name: str,
        servers: ModelServers,
        sampling: Sampling,
        timeout_s: float,
        *,
        stream: bool,
        stats: bool,
        thoughts: bool,
    ) -> None:
        self._name, self._servers, self._sampling, self._timeout_s = name, servers, sampling, timeout_s
        self._stream, self._stats, self._thoughts = stream, stats, thoughts

    def check_takes_messages(self) -> None:
        """Refuse a conversation with a model that takes no messages.

        Raises:
            InputError: it takes none, or there is no such release.
            UnavailableError: its server does not answer.
        """
        connection, where = self._servers.open()
        with closing(connection):
            model_inputs = GenerateClient(connection, str(where), self._servers.api_key).inputs(
                self._name, LOOK_TIMEOUT_S
            )
        check_takes_messages(self._name, model_inputs)

    def answer(self, printed: PrintedAnswer, prompt: str | Sequence[Message]) -> None:
        """Print the answer. Leaving early closes the connection, by which Triton notices that nobody waits.

        Raises:
            InputError: the model refused the request.
            UnavailableError: there is no answer, or it broke off.
        """
        try:
            connection, where = self._servers.open()
            with closing(connection):
                client = GenerateClient(connection, str(where), self._servers.api_key)
                inputs = partial(prompt_inputs, self._name, prompt, self._sampling)
                printed.print(
                    client.pieces(self._name, inputs, self._timeout_s), stream=self._stream, thoughts=self._thoughts
                )
        except UnavailableError:
            self._servers.forget()
            raise
        if self._stats:
            echo(f"[{printed.measured(client.sent_at_s)}; {where}]", err=True)


def _prompt(question: str | None, system: str | None, history: Sequence[Message]) -> str | Sequence[Message]:
    if question is not None and system is None and not history:
        return question
    first = [{"role": "system", "content": system}] if system is not None else []
    last = [{"role": "user", "content": question}] if question is not None else []
    return [*first, *history, *last]


def _prompt_of_stdin() -> str:
    text = sys.stdin.read(MAX_INPUT_BYTES + 1).strip()
    if len(text) > MAX_INPUT_BYTES:
        raise InputError("the prompt on stdin is too long", expected=f"at most {MAX_INPUT_BYTES} characters")
    if not text:
        raise InputError(
            "there is no prompt: stdin is empty and not a terminal",
            remedy="Give a prompt as an argument or on stdin, or run the command on a terminal for a conversation.",
        )
    return text


def _messages(file: Path) -> list[Message]:
    expected = 'a list of objects such as {"role": "user", "content": "..."}'
    if str(file) == STDIN:
        text = sys.stdin.buffer.read(MAX_INPUT_BYTES + 1)
    else:
        from slipway.tasks.document_files import read_regular_file  # noqa: PLC0415 - imports a reader of YAML

        text = read_regular_file(file, MAX_INPUT_BYTES, expected=expected)
    if len(text) > MAX_INPUT_BYTES:
        raise InputError(f"--messages {file} is too long", expected=f"at most {MAX_INPUT_BYTES} bytes")
    messages = parse_json(text, f"--messages {file}", expected=expected)
    if not isinstance(messages, list) or not messages:
        raise InputError(f"--messages {file} is not a list of messages", found=repr(messages)[:60], expected=expected)
    for number, message in enumerate(messages):
        texts = [message.get(part) for part in ("role", "content")] if isinstance(message, dict) else []
        if not texts or not all(isinstance(part, str) for part in texts):
            raise InputError(
                f"--messages {file}: message {number + 1} is wrong", found=repr(message)[:60], expected=expected
            )
    return messages


def _object(option: str, text: str) -> dict[str, Any]:
    value: Any = None
    with suppress(InputError):
        value = parse_json(text, option)
    if not isinstance(value, dict):
        raise InputError(
            f"{option} is not a JSON object",
            found=repr(text[:60]),
            expected="an object such as '{\"enable_thinking\": false}'",
            remedy="Correct it; a shell needs single quotes around it.",
        )
    return value
