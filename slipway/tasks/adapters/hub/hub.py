"""The adapter to the Hugging Face Hub: what a revision holds, and its files, verified against the announced digests.

Written against huggingface_hub 1.21. Nothing that a Hub sends is trusted: bounded_http.py bounds its answers, and files
have their announced sizes.
"""

import json
import logging
import re
from collections import Counter
from collections.abc import Callable
from functools import partial
from typing import Any, Protocol, TypeVar
from urllib.parse import unquote

import httpx
from huggingface_hub import HfApi, RepoFile, errors, hf_hub_url, set_client_factory
from typing_extensions import override

from slipway.tasks.adapters.bounded_http import ANSWER_S, UnboundedAnswerError, bound
from slipway.tasks.adapters.clock import Clock
from slipway.tasks.adapters.hub.hub_download import LONGER, RemoteFile, WrongBytesError
from slipway.tasks.adapters.hub.hub_errors import FOREIGN, HubErrors, RepoType
from slipway.tasks.adapters.hub.hub_transport import transport
from slipway.tasks.adapters.hub.reading import ModelHub, ignore, in_memory, readable
from slipway.tasks.adapters.store.object_store import ByteSource
from slipway.tasks.adapters.store.transfer import Count
from slipway.tasks.contracts.errors import DigestMismatchError, InputError
from slipway.tasks.contracts.stored.plan import DatasetFile, HubFile, Source

R = TypeVar("R")

log = logging.getLogger(__name__)

CONNECT_TIMEOUT_S = 10.0
STALL_S = 30.0
DOWNLOADS_OF_A_FILE = 2  # a second download repairs what a bad connection garbled
NAMES_QUOTED = 8
PATH_QUOTED = 80
DATASET_BYTES = 256 * 2**20  # held in memory, beside its parsed lines
DATASET = re.compile(
    r"^hf://datasets/(?P<repo>[^@\s]+)@(?P<revision>refs/(?:convert|pr)/[^/\s]+|[^/\s]+)/(?P<file>\S+)$"
)
"""A reference of the Hub has slashes; in another revision they are written %2F, as huggingface_hub writes them."""


class Hub(ModelHub, Protocol):
    """Model and dataset repositories."""

    def pin_dataset(self, uri: str) -> DatasetFile:
        """The current commit and digest of `hf://datasets/<org>/<name>@<revision>/<file>`."""

    def commit_of_dataset(self, repo: str) -> str:
        """The newest commit of a dataset's main branch.

        Raises:
            InputError: there is no such dataset, or no access to it.
        """

    def read_dataset(self, dataset: DatasetFile) -> list[dict[str, Any]]:
        """The objects of a pinned JSONL file, one for each line.

        Raises:
            DigestMismatchError: its bytes are not what was pinned.
        """


MAIN = "main"
HEADER_TEXT = re.compile(r"[!-~]+")
"""Visible ASCII, which a token consists of."""


class HuggingFaceHub(Hub):
    """The Hub at an endpoint. One per process: it sets the time limits of huggingface_hub's own client."""

    def __init__(
        self, endpoint: str, token: str | None, clock: Clock, *, stall_s: float = STALL_S, answer_s: float = ANSWER_S
    ) -> None:
        """`token` is the only one ever sent; one that huggingface_hub finds on this machine is not.

        Raises:
            InputError: the token cannot be sent in a header, which httpx would say by quoting it.
        """
        token = (token or "").strip() or None
        if token and not HEADER_TEXT.fullmatch(token):
            raise InputError(
                "the Hub token in the Secret of source.token_secret is not a token",
                found=f"{len(token)} characters, among them some that no HTTP header can hold",
                remedy="Put the token alone into the key of the Secret that source.token_secret names.",
            )
        self._endpoint, self.token, self.clock, self.stall_s = endpoint.rstrip("/"), token, clock, stall_s
        # model_info and dataset_info replace its time limit by their argument, which is none by default
        set_client_factory(partial(_client, stall_s, answer_s))
        self._api = HfApi(endpoint=self._endpoint, token=token or False)
        self._errors = HubErrors(self._endpoint, bool(token), self._revisions)

    @override
    def resolve(self, repo: str, revision: str) -> Source:
        with self._errors.translated("model", repo, revision):
            info = self._api.model_info(repo, revision=revision, timeout=self.stall_s, files_metadata=True)
            if info.gated:
                self._api.auth_check(repo)
            siblings = sorted(info.siblings or [], key=lambda sibling: sibling.rfilename)
            files = tuple(_hub_file(each.rfilename, each.size, each.lfs, each.blob_id) for each in siblings)
            source = Source(repo=repo, revision=revision, commit=str(info.sha), files=files)
        if repeated := [path for path, count in Counter(file.path for file in files).items() if count > 1]:
            raise InputError(
                f"model {repo}@{revision} lists {repeated[0][:PATH_QUOTED]} more than once",
                expected="every file once",
                remedy="Check that hub.endpoint in the site file is a Hub.",
            )
        return source

    @override
    def pin_dataset(self, uri: str) -> DatasetFile:
        parts = DATASET.match(uri)
        if parts is None:
            raise InputError(
                "invalid address of a dataset file", found=uri, expected="hf://datasets/<org>/<name>@<revision>/<file>"
            )
        repo, revision, name = parts["repo"], unquote(parts["revision"]), parts["file"]
        with self._errors.translated("dataset", repo, revision, name):
            info = self._api.dataset_info(repo, revision=revision, timeout=self.stall_s)
            if info.gated:
                self._api.auth_check(repo, repo_type="dataset")
            paths = self._api.get_paths_info(repo, [name], revision=info.sha, repo_type="dataset")
            if not paths or not isinstance(paths[0], RepoFile):
                raise InputError(
                    f"dataset {repo} has no file {name} at {revision}", remedy=f"Correct the file's name in {uri}."
                )
            file = _hub_file(name, paths[0].size, paths[0].lfs, paths[0].blob_id)
            pinned = DatasetFile(repo=repo, commit=str(info.sha), file=file)
        if file.size_bytes > DATASET_BYTES:
            raise InputError(
                f"dataset {uri} is too large to be held in memory",
                found=f"{file.size_bytes} bytes",
                expected=f"at most {DATASET_BYTES}",
                remedy="Give a smaller file.",
            )
        return pinned

    @override
    def commit_of_dataset(self, repo: str) -> str:
        with self._errors.translated("dataset", repo, MAIN):
            info = self._api.dataset_info(repo, revision=MAIN, timeout=self.stall_s)
            if info.gated:
                self._api.auth_check(repo, repo_type="dataset")
            return str(info.sha)

    @override
    def read_file(self, source: Source, path: str) -> bytes:
        file = readable(source, path)
        return self._bring("model", source.repo, source.commit, file, in_memory, ignore)

    @override
    def bring(self, source: Source, file: HubFile, take: Callable[[ByteSource], R], count: Count) -> R:
        return self._bring("model", source.repo, source.commit, file, take, count)

    @override
    def read_dataset(self, dataset: DatasetFile) -> list[dict[str, Any]]:
        data = self._bring("dataset", dataset.repo, dataset.commit, dataset.file, in_memory, ignore)
        return _json_lines(data, f"dataset {dataset.repo}, {dataset.file.path}")

    def _bring(
        self, kind: RepoType, repo: str, commit: str, file: HubFile, take: Callable[[ByteSource], R], count: Count
    ) -> R:
        what = f"{repo}@{commit[:12]} {file.path}"
        url = hf_hub_url(repo, file.path, repo_type=kind, revision=commit, endpoint=self._endpoint)
        translated = partial(self._errors.translated, kind, repo, commit, file.path)
        actual = ""
        for _ in range(DOWNLOADS_OF_A_FILE):
            remote = RemoteFile(url, self, file, count, what, translated)
            try:
                return take(remote)
            except WrongBytesError as error:
                actual = error.actual
                log.warning("%s: digest mismatch: got %s, expected %s", what, actual, file.digest)
                remote.take_back()
        if actual == LONGER:
            raise InputError(
                f"the Hub sends more bytes of {what} than it announced, {DOWNLOADS_OF_A_FILE} times in a row",
                expected=f"{file.size_bytes} bytes",
                remedy=f"Ask the owner of {repo}, or choose another revision.",
            )
        raise DigestMismatchError(
            what,
            expected=file.digest,
            found=actual,
            remedy=f"{DOWNLOADS_OF_A_FILE} downloads gave these bytes and none was kept: ask the owner of {repo}, or "
            "choose another revision.",
        )

    def _revisions(self, kind: RepoType, repo: str) -> str:
        try:
            refs = self._api.list_repo_refs(repo, repo_type=kind)
        except (errors.HfHubHTTPError, httpx.HTTPError, UnboundedAnswerError, *FOREIGN):
            return "others"
        names = [ref.name for ref in (*refs.branches, *refs.tags)]
        return ", ".join(names[:NAMES_QUOTED]) + (", ..." if len(names) > NAMES_QUOTED else "")


def _client(stall_s: float, answer_s: float) -> httpx.Client:
    return httpx.Client(
        transport=transport(),
        follow_redirects=True,
        timeout=httpx.Timeout(stall_s, connect=CONNECT_TIMEOUT_S),
        # a compressed answer has no bounded size, and a range of a compressed file would count other bytes
        headers={"Accept-Encoding": "identity"},
        event_hooks={"response": [partial(bound, answer_s=answer_s)]},
    )


def _hub_file(path: str, size_bytes: int | None, lfs: Any, blob_id: str | None) -> HubFile:
    """The file as announced; raises one of FOREIGN when its digest or size is missing or of another type."""
    digest = f"sha256:{lfs['sha256']}" if lfs else f"git-sha1:{blob_id}"
    return HubFile.model_validate({"path": path, "digest": digest, "size_bytes": size_bytes}, strict=True)


def _json_lines(data: bytes, what: str) -> list[dict[str, Any]]:
    lines = []
    for number, line in enumerate(data.splitlines(), start=1):
        if not line.strip():
            continue
        try:
            value = json.loads(line)
        except (ValueError, RecursionError) as error:
            raise InputError(
                f"{what}, line {number} is not valid JSON: {error}", remedy="Correct the dataset."
            ) from error
        if not isinstance(value, dict):
            raise InputError(
                f"{what}, line {number} is not an object",
                found=f"a {type(value).__name__}",
                remedy="Correct the dataset.",
            )
        lines.append(value)
    return lines
