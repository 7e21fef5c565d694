"""Registered models of MLflow: an alias is resolved to a version, whose folder an object store answers for.

The answers have the form of mlflow/server/handlers.py of mlflow 3.17.2.
"""

import json
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler
from urllib.parse import parse_qs, urlsplit

import pytest

from slipway.tasks.adapters.hub.folders import ObjectStoreFolders
from slipway.tasks.adapters.hub.mlflow_models import MlflowModels
from slipway.tasks.contracts.errors import InputError, UnavailableError
from slipway.tasks.contracts.site.site import MlflowSite
from slipway.tasks.contracts.spec.spec import Source
from slipway.tasks.contracts.stored.artifact import Layout
from tests.fakes.servers.loopback_server import LoopbackServer
from tests.fakes.store.object_store import MemoryObjectStore
from tests.support.refused import refused

FOLDER = "s3://models/1/models/m-abc/artifacts"
VERSION = {"name": "demo", "version": "3", "status": "READY", "source": "models:/m-abc"}
TOKEN = "secret-token"
UNKNOWN = {"error_code": "RESOURCE_DOES_NOT_EXIST", "message": "Registered model alias other not found."}


@contextmanager
def registry(status="READY", artifact_uri=FOLDER, code=None, token=TOKEN, version="3", answer=None, kind="text/plain"):
    """A server with version 3 of `demo` as `champion`, and models at it."""
    answers = {
        ("registered-models/alias", "champion"): {"model_version": {**VERSION, "version": version}},
        ("model-versions/get", "3"): {"model_version": {**VERSION, "status": status}},
        ("model-versions/get-download-uri", "3"): {"artifact_uri": artifact_uri},
    }

    class Handler(BaseHTTPRequestHandler):
        def do_GET(self):
            address = urlsplit(self.path)
            query = {name: values[0] for name, values in parse_qs(address.query).items()}
            path, which = address.path.removeprefix("/api/2.0/mlflow/"), query.get("alias", query.get("version"))
            found = answers.get((path, which)) if query["name"] == "demo" else None
            denied = self.headers.get("Authorization") != f"Bearer {TOKEN}"
            self.send_response(code or (401 if denied else 200 if found else 404))
            body = json.dumps(found or UNKNOWN).encode() if answer is None else answer
            self.send_header("Content-Type", kind)
            self.send_header("Content-Length", str(len(body)))
            self.end_headers()
            self.wfile.write(body)

        def log_message(self, *arguments):
            pass

    store = MemoryObjectStore()
    store.put_bytes(f"{FOLDER}/config.json", b"{}")
    with LoopbackServer(Handler) as server:
        folders = ObjectStoreFolders(store, Layout("s3://slipway"))
        yield MlflowModels(MlflowSite(endpoint=server.endpoint), token, folders)


@pytest.mark.parametrize("uri", ["mlflow:demo@champion", "mlflow:demo/3"])
def test_a_name_is_resolved_to_the_version_and_to_files_with_digests(uri):
    with registry() as models:
        source = models.resolve(uri, "main")

        assert (source.repo, source.revision) == (FOLDER, "models:/demo/3")
        assert models.read_file(source, "config.json") == b"{}"


@pytest.mark.parametrize(
    ("uri", "given", "fields"),
    [
        ("mlflow:demo@other", {}, {"what": "does not name mlflow:demo@other", "found": "alias other not found"}),
        ("mlflow:demo/4", {}, {"what": "does not name mlflow:demo/4", "found": "404"}),
        ("mlflow:demo/3", {"status": "PENDING_REGISTRATION"}, {"what": "is not complete", "found": "PENDING"}),
        (
            "mlflow:demo/3",
            {"artifact_uri": "mlflow-artifacts:/1/models/m-abc/artifacts"},
            {"what": "not in a folder of an object store", "remedy": "whose source is such a folder"},
        ),
        ("mlflow:demo/3", {"token": None}, {"found": "401", "remedy": "mlflow.token_secret"}),
    ],
)
def test_what_names_no_files_is_refused(uri, given, fields):
    with registry(**given) as models, refused(**fields):
        models.resolve(uri, "main")


@pytest.mark.parametrize(
    "given",
    [
        {"answer": b"[" * 200_000},
        {"answer": b"zipped", "code": 400, "kind": "text/plain; charset=zlib_codec"},
        {"version": None},
        {"version": {"a": 1}},
        {"version": "3\n\x1b[31m"},
        {"version": "3" * 3000},
    ],
)
def test_an_answer_that_is_not_mlflows_is_refused(given):
    with registry(**given) as models, pytest.raises(InputError, match="does not name mlflow:demo@champion") as refusal:
        models.resolve("mlflow:demo@champion", "main")

    assert len(str(refusal.value)) < 800


@pytest.mark.parametrize("code", [408, 429, 503])
def test_a_server_that_fails_may_be_asked_again(code):
    with registry(code=code) as models, refused(UnavailableError, found=str(code)):
        models.resolve("mlflow:demo/3", "main")


def test_a_token_that_no_header_holds_is_not_shown():
    with pytest.raises(InputError) as caught, registry(token="abc\nxyz"):
        pass

    assert "xyz" not in str(caught.value)


@pytest.mark.parametrize("uri", ["mlflow:", "mlflow:demo", "mlflow:demo/latest", "mlflow:demo@", "mlflow:../x@a"])
def test_other_forms_are_no_source(uri):
    with pytest.raises(ValueError, match="uri"):
        Source.model_validate({"uri": uri})
