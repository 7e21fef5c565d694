"""Tokens of an identity provider at the real front: made by PyJWT, checked by Envoy against the provider's own keys."""

import json
import re
import subprocess
import threading
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer

import pytest
from tritonclient import grpc as triton_grpc
from tritonclient.utils import InferenceServerException

from slipway.tasks.contracts.api_keys import CLIENT_HEADER, file_of, new_secret, subject_name
from slipway.tasks.contracts.site.authentication import TokenIssuer
from slipway.tasks.serving.rendered import front
from tests.local.serving.front.front_alone import Front, UnixServer
from tests.local.serving.front.test_api_keys import Echo, bearer, stored
from tests.local.serving.triton_server import LOOPBACK
from tests.support import plain_http
from tests.support.paths import ENVIRONMENTS
from tests.support.waiting import until

ISSUER, AUDIENCE, KEY = "https://id.example", "models", new_secret()
CAROL = "Carol|1@id.example"
LONG = "system_serviceaccount_" + "a" * 63 + "_" + "b" * 41
"""A subject that has a quota, of 127 letters."""
SUBJECTS = [CAROL, CAROL.lower(), "carol_1_id.example", "carol_1@id.example", "carol~1", "Zoë", "\x00", "a b", " ", "~"]
SUBJECTS += [LONG, f"{LONG}2", f"{LONG}23", f"{LONG}24", "a" * 20_000, "a" * 19_999]
MAKE = """
import json, sys, time
import jwt
from cryptography.hazmat.primitives.asymmetric import rsa
from jwt.algorithms import RSAAlgorithm

ours, other = (rsa.generate_private_key(public_exponent=65537, key_size=2048) for _ in range(2))
public = {**json.loads(RSAAlgorithm.to_jwk(ours.public_key())), "kid": "a", "alg": "RS256", "use": "sig"}
claims = {"iss": sys.argv[1], "aud": sys.argv[2], "sub": json.loads(sys.argv[3])[0], "exp": time.time() + 86400}

def made(key=ours, algorithm="RS256", **changes):
    chosen = {name: value for name, value in {**claims, **changes}.items() if value is not None}
    return jwt.encode(chosen, key, algorithm=algorithm, headers={"kid": "a"})

print(json.dumps({
    "jwks": {"keys": [public]},
    "right": made(),
    "tokens": [made(sub=each) for each in json.loads(sys.argv[3])],
    "wrong": {
        "of another key": made(other),
        "of another issuer": made(iss="https://evil.example"),
        "for others": made(aud="others"),
        "expired": made(exp=time.time() - 3600),
        "without an end": made(exp=None),
        "without a subject": made(sub=None),
        "not signed": made("", "none"),
        "signed with the public key": made(public["n"], "HS256"),
    },
}))
"""


@pytest.fixture(scope="module")
def made():
    command = [ENVIRONMENTS / "airflow/bin/python", "-W", "ignore", "-c", MAKE, ISSUER, AUDIENCE, json.dumps(SUBJECTS)]
    return json.loads(subprocess.run(command, capture_output=True, text=True, check=True).stdout)


@pytest.fixture(scope="module")
def door(made, tmp_path_factory):
    """A front that takes keys and tokens, before what shows the headers that reach it."""

    class Provider(BaseHTTPRequestHandler):
        def do_GET(self):
            body = json.dumps(made["jwks"]).encode()
            self.send_response(200)
            self.send_header("Content-Length", str(len(body)))
            self.end_headers()
            self.wfile.write(body)

    folder = tmp_path_factory.mktemp("tokens")
    keys = folder / "keys"
    keys.write_text(file_of([stored(KEY)]))
    with (
        ThreadingHTTPServer((LOOPBACK, 0), Echo) as triton,
        ThreadingHTTPServer((LOOPBACK, 0), Provider) as provider,
        UnixServer(str(folder / front.OPENAI_SOCKET), Echo) as api,
    ):
        for server in (triton, provider, api):
            threading.Thread(target=server.serve_forever, daemon=True).start()
        # of its addresses, the provider listens on that of IPv4 alone
        uri = f"http://localhost:{provider.server_port}/jwks.json"
        issuer = TokenIssuer(issuer=ISSUER, audiences=(AUDIENCE,), jwks_uri=uri)
        with Front(triton.server_port, folder, keys=keys, jwt=issuer, quotas=((f"jwt:{LONG}", 1000),)) as running:
            running.url = f"http://{LOOPBACK}:{running.port}"
            # the front fetches the provider's keys once it has started
            until(lambda: plain_http.get(f"{running.url}/v1/models", headers=bearer(made["right"])).status_code == 200)
            yield running
        for server in (triton, provider, api):
            server.shutdown()


@pytest.mark.parametrize("path", ["/v1/models", "/v2/models/demo/ready"])
def test_a_token_lets_in_and_its_subject_goes_on_and_it_does_not(door, made, path):
    answer = plain_http.get(f"{door.url}{path}", headers={**bearer(made["right"]), CLIENT_HEADER: "mallory"})

    assert (answer.status_code, answer.json()[CLIENT_HEADER]) == (200, "jwt:carol_1_id.example~58649794ba6ae89d")
    assert "authorization" not in answer.json()


def test_no_two_subjects_have_one_name(door, made):
    """Of whatever length and letters: each has its own quota. The site knows the names before the front makes them."""
    answers = [plain_http.get(f"{door.url}/v1/models", headers=bearer(token)).json() for token in made["tokens"]]
    names = [each[CLIENT_HEADER] for each in answers]

    assert names == [subject_name(each) for each in SUBJECTS]
    assert len(set(names)) == len(SUBJECTS)


def test_metrics_name_no_subject_without_a_quota_of_its_own(door, made):
    for token in (made["right"], made["tokens"][SUBJECTS.index(LONG)], KEY):
        plain_http.get(f"{door.url}/v1/models", headers=bearer(token))

    def clients():
        page = plain_http.get(f"http://{LOOPBACK}:{door.stats_port}/metrics").text
        return set(re.findall(r'envoy_slipway_requests\{[^}]*client="([^"]*)"', page))

    until(lambda: {"alice", "jwt:*", f"jwt:{LONG}"} <= clients())
    assert not any("carol" in name or name.endswith("2") for name in clients())


def test_every_token_that_is_wrong_is_refused(door, made):
    statuses = {
        how: plain_http.get(f"{door.url}/v1/models", headers=bearer(token)).status_code
        for how, token in made["wrong"].items()
    }

    assert statuses == dict.fromkeys(made["wrong"], 401)


def test_a_token_is_taken_from_its_header_alone(door, made):
    assert plain_http.get(f"{door.url}/v1/models", params={"access_token": made["right"]}).status_code == 401


def test_keys_are_taken_beside_tokens(door):
    answer = plain_http.get(f"{door.url}/v1/models", headers=bearer(KEY))

    assert (answer.status_code, answer.json()[CLIENT_HEADER]) == (200, "alice")


def test_grpc_takes_tokens_too(door, made):
    with triton_grpc.InferenceServerClient(f"{LOOPBACK}:{door.grpc_port}") as client:
        for token, refused in ((made["right"], False), (made["wrong"]["expired"], True)):
            with pytest.raises(InferenceServerException) as caught:  # nothing answers behind this front
                client.get_model_config("demo", headers={"authorization": f"Bearer {token}"})
            assert (caught.value.status() == "StatusCode.UNAUTHENTICATED") == refused
