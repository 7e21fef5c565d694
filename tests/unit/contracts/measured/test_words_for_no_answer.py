"""What real HTTP clients raise about servers that do not answer, and the words that a person reads."""

import contextlib
import socket
import threading
import urllib.request

import pytest
import urllib3

from slipway.tasks.contracts.wire.no_answer import why_no_answer
from tests.support.waiting import PATIENCE_S


@contextlib.contextmanager
def listening(answer):
    """The address of a server that does this with its connections."""
    with socket.create_server(("127.0.0.1", 0)) as server:

        def serve():
            with contextlib.suppress(OSError):
                while True:
                    answer(server.accept()[0])

        threading.Thread(target=serve, daemon=True).start()
        yield f"http://127.0.0.1:{server.getsockname()[1]}/"


def refused():
    with socket.create_server(("127.0.0.1", 0)) as server:
        port = server.getsockname()[1]
    return contextlib.nullcontext(f"http://127.0.0.1:{port}/")


KEPT = []
SILENT = "no answer in time"
SERVERS = {
    "connection refused": refused,
    "its name is not known": lambda: contextlib.nullcontext("http://nowhere.invalid/"),
    "the connection broke off": lambda: listening(socket.socket.close),
    SILENT: lambda: listening(KEPT.append),
}


def by_urllib3(url, timeout_s):
    urllib3.PoolManager(retries=0, timeout=timeout_s).request("GET", url)


def by_urllib3_once(url, timeout_s):
    urllib3.PoolManager(timeout=timeout_s).request("GET", url, retries=False)


def by_the_standard_library(url, timeout_s):
    urllib.request.urlopen(url, timeout=timeout_s)


@pytest.mark.parametrize("ask", [by_urllib3, by_urllib3_once, by_the_standard_library])
@pytest.mark.parametrize("why", SERVERS)
def test_a_client_s_exception_is_told_in_words(why, ask):
    with SERVERS[why]() as url, pytest.raises((OSError, urllib3.exceptions.HTTPError)) as caught:
        ask(url, 0.2 if why == SILENT else PATIENCE_S)

    assert why_no_answer(caught.value) == why


def test_an_exception_that_leads_to_itself_ends():
    error = RuntimeError("loop")
    error.__cause__ = error

    assert why_no_answer(error) == "no HTTP answer"
