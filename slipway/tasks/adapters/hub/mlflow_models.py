"""Versions in MLflow's model registry: the folder of an object store that holds the files of each.

Its REST API says that, so no package of MLflow is needed. Its artifact proxy is not read: it gives no digests.
"""

import re
from collections.abc import Callable, Mapping
from typing import Any, TypeVar

import httpx
from pydantic import TypeAdapter, ValidationError
from typing_extensions import override

from slipway.tasks.adapters.bounded_http import UnboundedAnswerError, bound
from slipway.tasks.adapters.hub.header_token import header_token
from slipway.tasks.adapters.hub.hub_errors import is_transient
from slipway.tasks.adapters.hub.reading import ModelHub
from slipway.tasks.adapters.store.object_store import ByteSource
from slipway.tasks.adapters.store.transfer import Count
from slipway.tasks.contracts.base import parse_json
from slipway.tasks.contracts.errors import InputError, UnavailableError
from slipway.tasks.contracts.site.site import MlflowSite
from slipway.tasks.contracts.spec_fields import MLFLOW, S3FolderUri
from slipway.tasks.contracts.stored.plan import HubFile, Source

R = TypeVar("R")

API = "/api/2.0/mlflow/"
ANSWER_S = 30.0
QUOTED_CHARS = 200
NAMED = re.compile(rf"{MLFLOW}(?P<name>.+?)(?:@(?P<alias>[^@/]+)|/(?P<version>[0-9]+))")
"""`mlflow:<name>@<alias>` or `mlflow:<name>/<version>`, as a spec may have it."""
VERSION = re.compile(r"[1-9][0-9]{0,9}")
READY = "READY"
FOLDER: TypeAdapter[str] = TypeAdapter(S3FolderUri)


class MlflowModels(ModelHub):
    """Registered models of MLflow. A version never changes; an alias is resolved to its version now."""

    def __init__(self, site: MlflowSite, token: str | None, folders: ModelHub) -> None:
        """`token` is sent to the site's tracking server alone; `folders` holds the files."""
        token = header_token(token or "", "the token in the Secret of mlflow.token_secret")
        headers = {"Authorization": f"Bearer {token}"} if token else {}
        self._site, self._folders = site, folders
        self._client = httpx.Client(
            base_url=site.endpoint.rstrip("/") + API,
            headers={"Accept-Encoding": "identity", **headers},
            timeout=ANSWER_S,
            event_hooks={"response": [bound]},
        )

    @override
    def resolve(self, repo: str, revision: str) -> Source:
        named = NAMED.fullmatch(repo)
        assert named is not None, repo
        version = named["version"] or self._version(repo, named["name"], named["alias"])
        if not VERSION.fullmatch(version):
            raise self._wrong(repo, f"version {version[:QUOTED_CHARS]!r}")
        which = {"name": named["name"], "version": version}
        state = self._get(repo, "model-versions/get", which, "model_version").get("status")
        if state != READY:
            raise InputError(
                f"version {version} of {named['name']} is not complete in MLflow",
                found=repr(state)[:QUOTED_CHARS],
                expected=READY,
            )
        folder = self._folder(repo, self._get(repo, "model-versions/get-download-uri", which).get("artifact_uri"))
        source = self._folders.resolve(folder, "")
        return source.model_copy(update={"revision": f"models:/{named['name']}/{version}"})

    @override
    def read_file(self, source: Source, path: str) -> bytes:
        return self._folders.read_file(source, path)

    @override
    def bring(self, source: Source, file: HubFile, take: Callable[[ByteSource], R], count: Count) -> R:
        return self._folders.bring(source, file, take, count)

    def _version(self, repo: str, name: str, alias: str) -> str:
        """The version that an alias means now."""
        which = {"name": name, "alias": alias}
        return str(self._get(repo, "registered-models/alias", which, "model_version").get("version", ""))

    def _folder(self, repo: str, uri: object) -> str:
        """The folder with a version's files.

        Raises:
            InputError: the files are not in an object store, or the tracking server gives them out itself.
        """
        try:
            return FOLDER.validate_python(uri)
        except ValidationError as error:
            raise InputError(
                f"the files of {repo} are not in a folder of an object store",
                found=repr(uri)[:QUOTED_CHARS],
                expected="s3://<bucket>/<prefix>, whose objects have digests",
                remedy="Register a version whose source is such a folder: docs/cluster-setup.md.",
            ) from error

    def _get(self, repo: str, path: str, which: Mapping[str, str], part: str | None = None) -> Mapping[str, Any]:
        """An object of the answer to a request.

        Raises:
            InputError: there is no such model, alias or version, or no access; or the answer is not MLflow's.
            UnavailableError: the server does not answer.
        """
        try:
            answer = self._client.get(path, params=which)
            if answer.is_success:
                found: Any = parse_json(answer.content, "the answer")
                return dict(found[part] if part else found)
        except (httpx.HTTPError, httpx.InvalidURL) as error:
            raise self._unavailable(repo, f"{type(error).__name__}: {error}") from error
        except (UnboundedAnswerError, InputError, ValueError, KeyError, TypeError) as error:
            raise self._wrong(repo, type(error).__name__) from error
        if is_transient(answer.status_code):
            raise self._unavailable(repo, f"status {answer.status_code}")
        # the server names the encoding of its text, and may name one that is none
        text = answer.content[: 4 * QUOTED_CHARS].decode(errors="replace")
        raise self._wrong(repo, f"status {answer.status_code}: {text}")

    def _wrong(self, repo: str, found: str) -> InputError:
        return InputError(
            f"{self._site.endpoint} does not name {repo}",
            found=found[:QUOTED_CHARS],
            expected="a registered model's alias or version",
            remedy="Correct source.uri, mlflow.endpoint of the site file, or the token in the Secret of "
            "mlflow.token_secret.",
        )

    def _unavailable(self, repo: str, found: str) -> UnavailableError:
        return UnavailableError(
            f"{self._site.endpoint} does not answer for {repo}",
            found=found[:QUOTED_CHARS],
            remedy="Check mlflow.endpoint in the site file, and that the server is up. On a cluster that enforces "
            "network policies, set mlflow.networks and run `slipway setup`.",
        )
