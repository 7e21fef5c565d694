"""`slipway ask`: one question to a model through its Service, as any client would ask it."""

import time
from typing import TYPE_CHECKING, Annotated

import typer

from cli.releases import Name, settings_of
from tasks.contracts.errors import InputError

if TYPE_CHECKING:
    from tasks.adapters.triton import GenerateRequest, TritonClient

ANSWER_TIMEOUT_S = 120.0


def ask(
    context: typer.Context,
    name: Name,
    question: Annotated[str, typer.Argument(help="The question, as a person would write it.")],
    candidate: Annotated[
        bool, typer.Option("--candidate", help="Ask the candidate instead of the live release.")
    ] = False,
    stream: Annotated[bool, typer.Option("--stream", help="Print the answer as it arrives.")] = False,
    lora: Annotated[
        str | None, typer.Option("--lora", metavar="ADAPTER", help="Let this adapter of the release answer.")
    ] = None,
    max_tokens: Annotated[int, typer.Option(metavar="N", min=1, help="Longest answer, in tokens.")] = 128,
) -> None:
    """Ask a model, through its Service."""
    # the clients of Kubernetes and Triton take a second to import, which other commands should not pay
    from tasks.adapters.triton import GenerateRequest, TritonClient  # noqa: PLC0415

    cluster = settings_of(context).cluster()
    address = cluster.candidate_address(name) if candidate else cluster.live_address(name)
    if address is None:
        raise InputError(f"nothing of {name} is live. `slipway release {name}` makes a release.")
    request = GenerateRequest(question, max_tokens, lora=lora)
    with TritonClient(address.host, address.ports["http"], address.ports["grpc"]) as client:
        (_streamed if stream else _whole)(client, name, request)


def _whole(client: "TritonClient", name: str, request: "GenerateRequest") -> None:
    began = time.monotonic()
    answer = client.generate(name, request, ANSWER_TIMEOUT_S)
    typer.echo(answer.text)
    typer.echo(f"[{time.monotonic() - began:.2f} s, ended by {answer.finish_reason or 'the server'}]", err=True)


def _streamed(client: "TritonClient", name: str, request: "GenerateRequest") -> None:
    """Pieces as they come; a piece holds one token or several, so pieces and not tokens are counted."""
    began = time.monotonic()
    pieces, first_s, reason = 0, None, ""
    for chunk in client.stream(name, request, ANSWER_TIMEOUT_S):
        typer.echo(chunk.text, nl=False)
        pieces, reason = pieces + bool(chunk.text), chunk.finish_reason or reason
        first_s = first_s if first_s is not None or not chunk.text else chunk.at_s - began
    typer.echo()
    first = f"first piece after {first_s:.2f} s, " if first_s is not None else ""
    typer.echo(
        f"[{first}{pieces} pieces in {time.monotonic() - began:.2f} s, ended by {reason or 'the server'}]", err=True
    )
