"""`slipway ask`: sends one prompt to a model through its Service, from inside or outside the cluster.

Nothing here imports the Kubernetes client, gRPC or numpy, so the first token arrives within two seconds.
"""

import json
import time
from collections.abc import Iterator
from contextlib import closing
from typing import Annotated, Any

import typer

from cli.arguments import Name, settings_of
from cli.generate import GenerateClient
from cli.model_connection import ModelServers
from cli.route import Direct, ThroughPod
from tasks.adapters.triton import Chunk, GenerateRequest
from tasks.contracts.errors import InputError

ANSWER_TIMEOUT_S = 120.0


def ask(  # noqa: PLR0913, PLR0917 - an argument for each option of the command
    context: typer.Context,
    name: Name,
    question: Annotated[str, typer.Argument(help="The prompt.")],
    candidate: Annotated[
        bool, typer.Option("--candidate", help="Use the candidate instead of the live release.")
    ] = False,
    stream: Annotated[bool, typer.Option("--stream/--no-stream", help="Print the answer as it arrives.")] = True,
    lora: Annotated[
        str | None, typer.Option("--lora", metavar="ADAPTER", help="Answer with this adapter of the release.")
    ] = None,
    template_arguments: Annotated[
        str | None,
        typer.Option(
            "--chat-template-kwargs", metavar="JSON", help="Override the chat template's arguments of the release."
        ),
    ] = None,
    max_tokens: Annotated[int, typer.Option(metavar="N", min=1, help="Maximum length of the answer, in tokens.")] = 128,
    host: Annotated[
        str | None,
        typer.Option(metavar="HOST[:PORT]", help="Send to this HTTP port of Triton, without using the cluster."),
    ] = None,
) -> None:
    """Send a prompt to a model through its Service.

    Uses the Service's external address if it has one. Otherwise the Kubernetes API forwards a port of a ready pod,
    which needs the Role slipway-user.
    """
    arguments = _object("--chat-template-kwargs", template_arguments) if template_arguments else {}
    request = GenerateRequest(question, max_tokens, lora=lora, chat_template_kwargs=arguments)
    servers = ModelServers(name, api=None if host else settings_of(context).kube_api(), host=host, candidate=candidate)
    connection, where = servers.open()
    with closing(connection):
        _print(GenerateClient(connection, str(where)).stream(name, request, ANSWER_TIMEOUT_S), where, stream=stream)


def _object(option: str, text: str) -> dict[str, Any]:
    try:
        value = json.loads(text)
    except ValueError:
        value = None
    if not isinstance(value, dict):
        raise InputError(
            f"{option} is not a JSON object",
            found=repr(text[:60]),
            expected="an object such as '{\"enable_thinking\": false}'",
            remedy="Correct it; a shell needs single quotes around it.",
        )
    return value


def _print(chunks: Iterator[Chunk], where: Direct | ThroughPod, *, stream: bool) -> None:
    """Print the answer; a piece holds one or more tokens, so pieces are counted."""
    started_at = time.monotonic()
    pieces, first_s, reason = [], None, ""
    for chunk in chunks:
        if stream:
            typer.echo(chunk.text, nl=False)
        pieces += [chunk.text] if chunk.text else []
        first_s = chunk.at_s - started_at if first_s is None and chunk.text else first_s
        reason = chunk.finish_reason or reason
    typer.echo("" if stream else "".join(pieces))
    first = f"first piece after {first_s:.2f} s, " if first_s is not None else ""
    total = f"{len(pieces)} pieces in {time.monotonic() - started_at:.2f} s"
    typer.echo(f"[{first}{total}, ended by {reason or 'the server'}; {where}]", err=True)
