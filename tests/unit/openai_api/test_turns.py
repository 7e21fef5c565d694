"""Each client has its share of a model's slots and of the room to wait, however much another one sends."""

import asyncio
import itertools
import json
from contextlib import ExitStack, asynccontextmanager, suppress

import pytest
from aiohttp.test_utils import TestServer

from slipway.tasks.contracts.api_keys import CLIENT_HEADER
from slipway.tasks.serving.openai_api import sending
from slipway.tasks.serving.openai_api.application import Routes
from slipway.tasks.serving.openai_api.generation.turns import Turns
from slipway.tasks.serving.openai_api.http.errors import ApiError
from tests.support.waiting import PATIENCE_S
from tests.unit.openai_api.test_routes import CHAT, HELLO, Triton, exchanged


class Requests:
    """Requests that end when a test says so; whose began, in order."""

    def __init__(self, turns):
        self._turns, self.began, self._under_way = turns, [], []

    async def send(self, clients):
        self._under_way += [(client, asyncio.create_task(self._one(client))) for client in clients]
        await self._settle()

    async def end(self, client):
        """Cancel one of those that the client sent first."""
        index = next(at for at, (name, _) in enumerate(self._under_way) if name == client)
        self._under_way.pop(index)[1].cancel()
        await self._settle()

    async def _one(self, client):
        async with self._turns.turn(client):
            self.began.append(client)
            await asyncio.Event().wait()

    async def _settle(self):
        for _ in range(10):
            await asyncio.sleep(0)


def test_the_next_turn_is_of_the_client_with_the_fewest_requests_at_the_model():
    async def play():
        requests = Requests(Turns(4, 100))
        await requests.send("mmmmmmmmmmmm")
        assert requests.began == ["m"] * 5
        await requests.send("aabb")
        for _ in range(4):
            await requests.end("m")
        assert requests.began[5:] == ["a", "b", "a", "m"]  # each has one or two now

    asyncio.run(play())


def test_a_client_that_leaves_while_it_waits_has_no_turn_and_takes_none():
    async def play():
        requests = Requests(Turns(1, 100))
        await requests.send("mmab")
        await requests.end("a")
        await requests.end("m")
        assert requests.began == ["m", "m", "b"]
        for left in "mb":
            await requests.end(left)
        await requests.send("cc")
        assert requests.began == ["m", "m", "b", "c", "c"]

    asyncio.run(play())


def test_requests_of_no_client_wait_for_nobody():
    async def play():
        requests = Requests(Turns(1, 2))
        await requests.send([""] * 9)
        assert len(requests.began) == 9

    asyncio.run(play())


def has_room(turns, opened, client):
    try:
        opened.enter_context(turns.room(client))
    except ApiError:
        return False
    return True


def filled(turns, opened, client):
    """How many requests of a client find room."""
    return next(count for count in itertools.count() if not has_room(turns, opened, client))


def test_whoever_comes_later_finds_room_and_all_of_it_is_free_again():
    turns = Turns(4, 100)
    for _ in range(2):
        with ExitStack() as opened:
            assert [filled(turns, opened, client) for client in "mno"] == [50, 25, 13]
            opened.enter_context(turns.room("alice"))


def test_one_client_alone_may_use_every_slot_of_a_model_with_little_room():
    with ExitStack() as opened:
        assert filled(Turns(16, 16), opened, "m") == 20


@pytest.mark.parametrize(("client", "status"), [("alice", 503), ("", 200)])
def test_a_request_without_room_is_refused_at_once_and_asked_to_come_again(client, status):
    triton, full, path = Triton(HELLO), Turns(1, 1), ("POST", "/v1/chat/completions", CHAT)
    with full.room("m"), full.room("m"):
        ((found, text, headers),) = exchanged(
            triton, path, headers={CLIENT_HEADER: client}, names_clients=True, turns=full
        )

    assert (found, headers.get("Retry-After")) == (status, "1" if status == 503 else None), text
    assert len(triton.asked) == (status == 200)


def test_an_answer_ends_its_turn():
    turns, path = Turns(1, 100), ("POST", "/v1/chat/completions", CHAT)
    answers = exchanged(Triton(HELLO), *[path] * 5, headers={CLIENT_HEADER: "alice"}, names_clients=True, turns=turns)

    assert [status for status, _, _ in answers] == [200] * 5


@asynccontextmanager
async def stream_of_m(server):
    """What arrives of a stream that m has asked for, from its first line on."""
    reader, writer = await asyncio.open_connection(server.host, server.port, limit=1 << 14)
    body = json.dumps({**CHAT, "stream": True})
    head = f"POST /v1/chat/completions HTTP/1.1\r\nHost: x\r\n{CLIENT_HEADER}: m\r\nContent-Length: {len(body)}"
    writer.write(f"{head}\r\n\r\n{body}".encode())
    try:
        assert b"200" in await reader.readline()
        yield reader
    finally:
        writer.close()
        with suppress(ConnectionError):
            await writer.wait_closed()


async def read_slowly(streams):
    """Less than the server has, at a time."""
    with suppress(ConnectionError):
        for stream in itertools.cycle(streams):
            await stream.read(1 << 14)
            await asyncio.sleep(0.001)


@pytest.mark.parametrize("reads", [False, True])
def test_whoever_does_not_read_or_hardly_reads_gives_its_turns_back(monkeypatch, reads):
    """The answer has no end, so nothing but the limit ends it."""
    monkeypatch.setattr(sending, "PATIENCE_S", 1.0)
    triton, turns = Triton(itertools.repeat([{"text_output": "x" * (1 << 17), "finish_reason": ""}])), Turns(1, 100)
    routes = Routes(triton, ["demo"], "demo-1", names_clients=True, turns=turns)

    async def play():
        async with TestServer(routes.application()) as server, stream_of_m(server) as one, stream_of_m(server) as other:
            reading = asyncio.create_task(read_slowly([one, other] if reads else []))
            async with asyncio.timeout(PATIENCE_S), turns.turn("alice"):
                reading.cancel()

    asyncio.run(play())
    assert triton.ended
