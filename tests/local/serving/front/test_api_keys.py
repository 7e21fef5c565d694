"""API keys at the real front: for each client's own package, in the errors of its API, and never beyond the front."""

import contextlib
import http.client
import json
import re
import subprocess
import threading
import time
from datetime import UTC, datetime, timedelta
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer

import openai
import pytest
from tritonclient import grpc as triton_grpc
from tritonclient.utils import InferenceServerException

from slipway.cli.ask.generate import GenerateClient
from slipway.tasks.adapters.kube.service_object import ServiceAddress
from slipway.tasks.adapters.load.connecting import connect
from slipway.tasks.adapters.triton.generate_request import GenerateRequest
from slipway.tasks.contracts.api_keys import (
    CLIENT_HEADER,
    ApiKey,
    file_of,
    new_secret,
    read_keys,
    sha256_of_key,
    time_text,
)
from slipway.tasks.serving.rendered import front, front_keys
from slipway.tasks.serving.rendered.front_keys import OVER_QUOTA
from tests.local.serving.front.front_alone import Front, UnixServer
from tests.local.serving.openai_server import KeptClient, OpenAiServer, client_of
from tests.local.serving.triton_server import LOOPBACK
from tests.support import plain_http
from tests.support.paths import ENVIRONMENTS
from tests.support.refused import refused
from tests.support.seeds import dice
from tests.support.waiting import PATIENCE_S, until

NOW = datetime.now(UTC)
ALICE, OLD = new_secret(), new_secret()
GENERATE = "/v2/models/demo/generate"
PAGE = "https://ui.example"


def stored(secret, name="alice", expires="never"):
    return ApiKey(name, sha256_of_key(secret), time_text(NOW), expires)


KEYS = [
    stored(ALICE, expires=time_text(NOW + timedelta(days=1))),
    stored(OLD, "old", time_text(NOW - timedelta(seconds=1))),
]


def bearer(secret):
    return {"Authorization": f"Bearer {secret}"}


@pytest.fixture(scope="module")
def locked(server, api, tmp_path_factory):
    """A front with keys before a real API and a real Triton."""
    folder = tmp_path_factory.mktemp("locked")
    keys = folder / "keys"
    keys.write_text(f"not a key\n{file_of(KEYS)}")
    with OpenAiServer(server, folder, behind=api, keys=keys) as running:
        running.keys = keys
        yield running


class Echo(BaseHTTPRequestHandler):
    """Answers every request with its headers."""

    protocol_version = "HTTP/1.1"

    def do_GET(self):
        body = json.dumps(dict(self.headers.items())).lower().encode()
        self.send_response(200)
        self.send_header("Content-Length", str(len(body)))
        self.end_headers()
        self.wfile.write(body)

    def do_POST(self):
        self.rfile.read(int(self.headers["content-length"]))
        self.do_GET()

    def do_OPTIONS(self):
        self.do_GET()

    def log_message(self, *_):
        """Nothing: its client may be a Unix socket, which has no address."""


@pytest.fixture(scope="module")
def echo(tmp_path_factory):
    """A front with keys before what shows the headers that reach it; browsers may ask."""
    folder = tmp_path_factory.mktemp("echo")
    keys = folder / "keys"
    keys.write_text(file_of(KEYS))
    socket = str(folder / front.OPENAI_SOCKET)
    with ThreadingHTTPServer((LOOPBACK, 0), Echo) as triton, UnixServer(socket, Echo) as api:
        for server in (triton, api):
            threading.Thread(target=server.serve_forever, daemon=True).start()
        with Front(triton.server_port, folder, keys=keys, origins=(PAGE,)) as running:
            running.keys, running.url = keys, f"http://{LOOPBACK}:{running.port}"
            yield running
        for server in (triton, api):
            server.shutdown()


def test_openais_client_needs_a_key(locked):
    assert [model.id for model in client_of(locked, ALICE).models.list()] == ["demo"]
    for secret in ("none", OLD, ALICE[:-1], f"{ALICE}a", "x" * 1000):
        with pytest.raises(openai.AuthenticationError) as caught:
            client_of(locked, secret).chat.completions.create(model="demo", messages=[{"role": "user", "content": "a"}])
        assert (caught.value.code, caught.value.type) == ("invalid_api_key", "invalid_request_error")


ANTHROPIC = """
import sys, anthropic
client = anthropic.Anthropic(base_url=sys.argv[1], api_key=sys.argv[2], max_retries=0)
try:
    client.messages.create(model="demo", max_tokens=1, messages=[{"role": "user", "content": "a"}])
    print("answered")
except anthropic.AuthenticationError as error:
    print(error.body["type"], error.body["error"]["type"])
"""


@pytest.mark.parametrize(("secret", "printed"), [(ALICE, "answered"), (OLD, "error authentication_error")])
def test_anthropics_client_needs_a_key(locked, secret, printed):
    command = [ENVIRONMENTS / "clients/bin/python", "-c", ANTHROPIC, locked.url, secret]
    assert subprocess.run(command, capture_output=True, text=True, check=True).stdout.strip() == printed


def test_tritons_grpc_client_needs_a_key(locked):
    with triton_grpc.InferenceServerClient(f"{LOOPBACK}:{locked.grpc_port}") as client:
        assert client.get_model_metadata("demo", headers={"authorization": f"Bearer {ALICE}"}).name == "demo"
        for headers in (None, {"authorization": f"Bearer {OLD}"}):
            with pytest.raises(InferenceServerException) as caught:
                client.get_model_metadata("demo", headers=headers)
            assert caught.value.status() == "StatusCode.UNAUTHENTICATED"
        assert client.is_server_ready()
        assert client.is_server_live()


def test_slipways_own_clients_send_their_key(locked):
    question = GenerateRequest("What is the capital of France?", 40)
    ports = {"http": locked.port, "grpc": locked.grpc_port}
    with connect(ServiceAddress(LOOPBACK, ports, ALICE)) as client:
        assert client.is_ready("demo")
        assert client.generate("demo", question, 30).text
    with connect(ServiceAddress(LOOPBACK, ports)) as client, refused(remedy="slipway key create"):
        client.generate("demo", question, 30)

    def asked(secret):
        with contextlib.closing(http.client.HTTPConnection(LOOPBACK, locked.port, timeout=PATIENCE_S)) as connection:
            return list(GenerateClient(connection, "here", secret).stream("demo", question, 30))

    assert asked(ALICE)
    with refused(remedy="slipway key create"):
        asked("")


def test_keys_change_under_kept_connections_and_no_request_is_lost(locked):
    """The way to replace a key: add the new one, give it to the client, remove the old one."""
    second, url = new_secret(), f"{locked.url}/v2/models/demo/config"
    sent = {"key": ALICE}

    def change(*keys):
        text = locked.keys.with_suffix(".new")
        text.write_text(file_of(keys))
        text.replace(locked.keys)

    with (
        plain_http.client() as over_http,
        triton_grpc.InferenceServerClient(f"{LOOPBACK}:{locked.grpc_port}") as over_grpc,
        KeptClient(lambda: over_http.get(url, headers=bearer(sent["key"])).raise_for_status()) as one,
        KeptClient(
            lambda: over_grpc.get_model_config("demo", headers={"authorization": f"Bearer {sent['key']}"})
        ) as two,
    ):
        for keys, key in (([*KEYS, stored(second)], second), ([stored(second)], second), (KEYS, None)):
            before = len(one.answers), len(two.answers)
            until(lambda before=before: len(one.answers) > before[0] + 5 and len(two.answers) > before[1] + 5)
            if key is None:
                break
            change(*keys)
            until(lambda: plain_http.get(url, headers=bearer(second)).status_code == 200)
            time.sleep(2)  # every worker of the front reads the file at most once a second
            sent["key"] = key
        assert over_http.get(url, headers=bearer(ALICE)).status_code == 401
    change(*KEYS)
    assert (one.failures, two.failures) == ([], [])


@pytest.mark.parametrize("path", [*front_keys.HTTP_OPEN, "/v2/health/ready?a=b"])
def test_load_balancers_ask_without_a_key(locked, path):
    assert plain_http.get(f"{locked.url}{path}").status_code == 200


@pytest.mark.parametrize(
    ("method", "path"),
    [
        ("POST", "/health"),
        ("GET", "/health/"),
        ("GET", "/v1/models"),
        ("GET", "/v2"),
        ("GET", "/v2/health/../models/demo/config"),
        ("GET", "/v2/models/demo/config?/v2/health/ready"),
        ("GET", "/v2/logging"),
        ("OPTIONS", "/v1/models"),
    ],
)
def test_nothing_else_is_reached_without_a_key(echo, method, path):
    answer = plain_http.request(method, f"{echo.url}{path}")

    assert (answer.status_code, answer.headers["www-authenticate"]) == (401, "Bearer")
    error = answer.json()["error"]
    assert "API key" in (error if path.startswith("/v2") else error["message"])


def test_routes_of_the_administrator_are_closed_with_a_key_too(echo):
    assert plain_http.get(f"{echo.url}/v2/logging", headers=bearer(ALICE)).status_code == 404


@pytest.mark.parametrize(("page", "allowed"), [(PAGE, PAGE), ("http://ui.example", None)])
def test_a_page_of_the_site_asks_without_a_key_whether_it_may_send_one(echo, page, allowed):
    asks = {"Origin": page, "Access-Control-Request-Method": "POST", "Access-Control-Request-Headers": "authorization"}
    answer = plain_http.options(f"{echo.url}/v1/chat/completions", headers=asks)

    assert (answer.status_code, answer.headers.get("access-control-allow-origin")) == (200 if allowed else 401, allowed)
    assert not allowed or "authorization" in answer.headers["access-control-allow-headers"]


def test_every_page_may_ask_where_the_site_allows_all(tmp_path):
    asks = {"Origin": PAGE, "Access-Control-Request-Method": "POST"}
    with Front(0, tmp_path, origins=("*",)) as running:
        answer = plain_http.options(f"http://{LOOPBACK}:{running.port}/v1/chat/completions", headers=asks)

    assert (answer.status_code, answer.headers["access-control-allow-origin"]) == (200, PAGE)


@pytest.mark.parametrize(("key", "status"), [(ALICE, 200), (OLD, 401)])
def test_a_page_of_the_site_reads_answers_and_refusals(echo, key, status):
    answer = plain_http.get(f"{echo.url}/v1/models", headers={"Origin": PAGE, **bearer(key)})

    assert (answer.status_code, answer.headers["access-control-allow-origin"]) == (status, PAGE)


@pytest.mark.parametrize("path", ["/v1/models", "/v2/models/demo/ready"])
@pytest.mark.parametrize("header", [bearer(ALICE), {"authorization": f"bearer  {ALICE}"}, {"X-Api-Key": ALICE}])
def test_the_name_of_a_key_goes_on_and_the_key_does_not(echo, path, header):
    answer = plain_http.get(f"{echo.url}{path}", headers={**header, CLIENT_HEADER: "mallory"})

    assert answer.json()[CLIENT_HEADER] == "alice"
    assert not {"authorization", "x-api-key"} & set(answer.json())
    assert ALICE.lower() not in answer.text


def test_the_front_logs_whose_key_it_was_and_never_the_key(echo):
    def logged():
        return [json.loads(line) for line in echo.log.read_text().splitlines() if line.startswith("{")]

    plain_http.get(f"{echo.url}/v2/models/demo/ready?logged=1", headers=bearer(ALICE))
    plain_http.get(f"{echo.url}/v2/models/refused/ready", headers=bearer(OLD))
    plain_http.get(f"{echo.url}/health")

    wanted = {("alice", "/v2/models/demo/ready", 200), (None, "/v2/models/refused/ready", 401)}
    until(lambda: wanted <= {(line["client"], line["path"], line["status"]) for line in logged()})
    assert (None, "/health", 200) not in {(line["client"], line["path"], line["status"]) for line in logged()}
    assert ALICE not in echo.log.read_text()
    assert OLD not in echo.log.read_text()


def test_requests_are_counted_by_key(echo):
    def count(client, status):
        page = plain_http.get(f"http://{LOOPBACK}:{echo.stats_port}/metrics").text
        found = re.findall(
            rf'^envoy_slipway_requests{{client="{client}",code="{status}",grpc_status=""}} (\d+)$', page, re.MULTILINE
        )
        return int(*found or "0")

    before = count("alice", 200), count("", 401)
    plain_http.get(f"{echo.url}/v2/models/demo/ready", headers=bearer(ALICE))
    plain_http.get(f"{echo.url}/v1/models", headers=bearer(OLD))

    until(lambda: (count("alice", 200), count("", 401)) == (before[0] + 1, before[1] + 1))


@pytest.fixture(scope="module")
def quotas(tmp_path_factory):
    """A front before nothing, of which alice may ask twice a minute, bob as often as he likes, and others once."""
    folder = tmp_path_factory.mktemp("quotas")
    keys, secrets = folder / "keys", {name: new_secret() for name in ("alice", "bob", "carol", "dave")}
    keys.write_text(file_of(stored(secret, name) for name, secret in secrets.items()))
    socket = str(folder / front.OPENAI_SOCKET)
    given = (("*", 1), ("alice", 2), ("bob", front_keys.UNLIMITED_REQUESTS))
    with ThreadingHTTPServer((LOOPBACK, 0), Echo) as triton, UnixServer(socket, Echo) as api:
        for server in (triton, api):
            threading.Thread(target=server.serve_forever, daemon=True).start()
        with Front(triton.server_port, folder, keys=keys, quotas=given) as running:
            running.secrets, running.url = secrets, f"http://{LOOPBACK}:{running.port}"
            yield running
        for server in (triton, api):
            server.shutdown()


def test_a_key_over_its_quota_is_told_when_to_ask_again_and_others_go_on(quotas):
    with plain_http.client(base_url=quotas.url) as client:

        def refused(name, path="/v1/models", number=40):
            answers = [client.get(path, headers=bearer(quotas.secrets[name])) for _ in range(number)]
            assert {answer.status_code for answer in answers} <= {200, 429}
            return [answer for answer in answers if answer.status_code == 429]

        # a bucket fills by two a minute, however slow the machine is
        assert refused("alice")
        assert refused("carol")
        assert refused("bob") == []
        assert client.get("/v1/models", headers=bearer(quotas.secrets["dave"])).status_code == 200
        assert client.get("/health").status_code == 200

        answer = refused("alice")[-1]
        assert 1 <= int(answer.headers["retry-after"]) <= 60
        error = answer.json()["error"]
        assert (error["type"], error["code"], error["message"]) == ("requests", "rate_limit_exceeded", OVER_QUOTA)
        assert refused("alice", "/v2/models/demo/ready")[-1].json() == {"error": OVER_QUOTA}
        assert refused("alice", "/v1/messages")[-1].json()["error"]["type"] == "rate_limit_error"


def test_a_key_over_its_quota_is_refused_over_grpc(quotas):
    headers = {"authorization": f"Bearer {quotas.secrets['carol']}"}
    statuses = set()
    with triton_grpc.InferenceServerClient(f"{LOOPBACK}:{quotas.grpc_port}") as client:
        for _ in range(20):
            with pytest.raises(InferenceServerException) as caught:  # nothing answers behind this front
                client.get_model_config("demo", headers=headers)
            statuses.add(caught.value.status())

    assert "StatusCode.RESOURCE_EXHAUSTED" in statuses


WRITTEN = {
    "as it is": lambda key: key.line,
    "CRLF": lambda key: key.line.replace("\n", "\r\n"),
    "upper case": lambda key: key.line.replace(key.sha256, key.sha256.upper()),
    "no time": lambda key: key.line.replace(key.created, "today"),
    "digits of another script": lambda key: key.line.replace("20", "\u0662\u0660", 1),
    "two spaces": lambda key: key.line.replace(" ", "  ", 1),
    "a control character before it": lambda key: f"x\x0b{key.line}",
    "a line separator before it": lambda key: f"x\u2028{key.line}",
    "a name that ends with a dash": lambda key: f"a-{key.line.removeprefix(key.name)}",
    "the longest name": lambda key: f"{'a' * 63}{key.line.removeprefix(key.name)}",
    "a longer name": lambda key: f"{'a' * 64}{key.line.removeprefix(key.name)}",
}


@contextlib.contextmanager
def changed_to(front, text):
    """The front's keys within the block; those before it come back even if a test fails."""
    before = front.keys.read_text()
    front.keys.write_text(text)
    try:
        yield
    finally:
        front.keys.write_text(before)


def test_the_front_takes_the_lines_as_keys_that_the_command_lists_and_can_revoke(echo):
    secrets = {how: new_secret() for how in WRITTEN}
    last = new_secret()
    text = "".join(write(stored(secrets[how])) for how, write in WRITTEN.items()) + stored(last).line
    listed = {key.sha256 for key in read_keys(text)}
    with changed_to(echo, text), plain_http.client(base_url=echo.url) as client:

        def is_let_in(secret):
            return client.get("/v1/models", headers=bearer(secret)).status_code == 200

        until(lambda: is_let_in(last))
        let_in = {how for how, secret in secrets.items() if is_let_in(secret)}
    assert let_in == {how for how, secret in secrets.items() if sha256_of_key(secret) in listed}
    assert let_in == {"as it is", "the longest name"}


@pytest.mark.parametrize("keys", [None, "absent", "."], ids=["a script that fails", "no file", "a folder"])
def test_a_front_that_cannot_read_its_keys_lets_nobody_in(tmp_path, keys):
    """Envoy goes on with a request whose script fails: without the variable, this one does."""
    with Front(0, tmp_path, keys=keys and tmp_path / keys, locked=True) as running:
        answer = plain_http.get(f"http://{LOOPBACK}:{running.port}/v1/models", headers=bearer(ALICE))

    assert answer.status_code == 401


def test_keys_of_every_length_and_content_are_hashed_as_sha256(echo):
    some = dice()
    secrets = ["".join(chr(some.randrange(33, 127)) for _ in range(length)) for length in range(1, 56)]
    text = echo.keys.read_text() + file_of(stored(secret, f"key-{len(secret)}") for secret in secrets)
    with changed_to(echo, text), plain_http.client(base_url=echo.url) as client:
        until(lambda: client.get("/v1/models", headers=bearer(secrets[-1])).status_code == 200)
        names = [client.get("/v1/models", headers=bearer(each)).json()[CLIENT_HEADER] for each in secrets]
    assert names == [f"key-{length}" for length in range(1, 56)]
