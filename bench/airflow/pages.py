"""`python -m bench.airflow.pages`: how long the page of all models takes until a browser paints it.

An HTTP server renders the page from moto's S3, as Airflow's API server does, but without Airflow: who may see what is
Airflow's own work. The page is opened when nothing of the store is known, and again when everything is. The peer reads
the same documents one after the other each time. Needs Chromium, and the environments airflow and local.
"""

import argparse
import http.server
import os
import platform
import sys
import tempfile
import threading
from collections.abc import Callable, Mapping
from datetime import UTC, datetime, timedelta
from pathlib import Path
from statistics import median
from typing import Any

import boto3
from botocore.config import Config

from bench.transfer.transfer_servers import CREDENTIALS, START_S, moto
from bench.waiting import wait_until
from slipway.airflow.page.documents import AT_ONCE, Documents
from slipway.tasks.contracts.base import canonical_json
from slipway.tasks.contracts.stored.artifact import Layout
from slipway.tasks.contracts.stored.channel import Channel
from slipway.tasks.pages.models import DAYS, Doing, read_rows, window
from slipway.tasks.pages.reading import Parse, Stored, parsed
from slipway.tasks.pages.templates import POLICY, render
from tests.fakes.releases import release
from tests.support.browser import page

LAYOUT = Layout("s3://slipway/team")
EVENTS = 30
"""Events of each channel."""
GOAL_MS = 300.0
PAINT = "performance.getEntriesByName('first-contentful-paint')[0]?.startTime"


class InTurn:
    """A reader that keeps nothing and reads one document after the other."""

    def __init__(self, client: Any) -> None:
        self._client = client

    def read(self, wanted: Mapping[str, Parse]) -> dict[str, Stored]:
        """Every document."""
        found = {}
        for uri, parse in wanted.items():
            bucket, _, key = uri.removeprefix("s3://").partition("/")
            try:
                found[uri] = parsed(self._client.get_object(Bucket=bucket, Key=key)["Body"].read(), parse)
            except self._client.exceptions.NoSuchKey:
                found[uri] = Stored()
        return found


def main() -> int:
    """Print a line for each reader."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--models", type=int, default=100)
    parser.add_argument("--readings", type=int, default=5)
    arguments = parser.parse_args()
    names = [f"model-{number}" for number in range(arguments.models)]
    print(f"{platform.machine()}, {os.cpu_count()} CPUs, Python {platform.python_version()}", end="; ")
    print(f"{len(names)} models with {EVENTS} events each, first contentful paint, median of {arguments.readings}")
    config = Config(max_pool_connections=AT_ONCE)
    os.environ.update(CREDENTIALS)
    with moto() as endpoint, tempfile.TemporaryDirectory() as folder:
        client = boto3.client("s3", endpoint_url=endpoint, config=config)
        write(names, client)
        kept = Documents(lambda: client)
        painted = {"nothing known": [], "all known": [], "each read in turn": []}  # type: dict[str, list[float]]
        with page(Path(folder)) as shown:
            for _ in range(arguments.readings):
                readers = {
                    "nothing known": Documents(lambda: client),
                    "all known": kept,
                    "each read in turn": InTurn(client),
                }
                for name, reader in readers.items():
                    painted[name].append(paint_ms(shown, lambda reader=reader: text(names, reader)))  # type: ignore[misc]
    peer_ms = median(painted["each read in turn"])
    for name, times in painted.items():
        verdict = (
            f" (goal {GOAL_MS:.0f} ms: {'met' if median(times) <= GOAL_MS else 'missed'})"
            if name == "all known"
            else ""
        )
        print(f"{name:18} {median(times):6.0f} ms, ratio {median(times) / peer_ms:.2f}{verdict}")
    return 0


def text(names: list[str], reader: Any) -> str:
    """The page."""
    return render(
        "models.html.j2",
        rows=read_rows(names, LAYOUT, reader),
        doing=dict.fromkeys(names, Doing()),
        window=window(names, 1),
        days=DAYS,
        now=datetime.now(UTC),
        hub="https://huggingface.co",
    )


def paint_ms(shown: Any, made: Callable[[], str]) -> float:
    """Milliseconds from the navigation until a browser paints what `made` returns to its request."""

    class Handler(http.server.BaseHTTPRequestHandler):
        def do_GET(self) -> None:
            body = made().encode() if self.path == "/" else b""
            self.send_response(200)
            self.send_header("Content-Type", "text/html; charset=utf-8")
            self.send_header("Content-Security-Policy", POLICY)
            self.send_header("Content-Length", str(len(body)))
            self.end_headers()
            self.wfile.write(body)

        def log_message(self, *_: object) -> None:
            """Nothing."""

    with http.server.ThreadingHTTPServer(("127.0.0.1", 0), Handler) as server:
        threading.Thread(target=server.serve_forever, daemon=True).start()
        shown.open(f"http://127.0.0.1:{server.server_port}/")
        wait_until(lambda: bool(shown.run(PAINT)), START_S)
        measured: float = shown.run(PAINT)
        server.shutdown()
    return measured


def write(names: list[str], client: Any) -> None:
    """A live release of each model, and its channel."""
    live, now = release(), datetime.now(UTC)
    for name in names:
        uri = LAYOUT.release(name, live.id)
        channel = Channel(name=name).promoted(live.id, uri, at=now - timedelta(days=DAYS), run="one", keep=2)
        for number in range(EVENTS - 1):
            at = now - timedelta(days=DAYS - number)
            channel = channel.refused(f"{name}-{number}", at=at, run=str(number), reason="build: out of memory")
        for where, document in ((LAYOUT.channel(name), channel), (uri, live)):
            bucket, _, key = where.removeprefix("s3://").partition("/")
            client.put_object(Bucket=bucket, Key=key, Body=canonical_json(document.model_dump(mode="json")))


if __name__ == "__main__":
    sys.exit(main())
