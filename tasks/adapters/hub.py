"""The door to the Hugging Face Hub: what a revision holds, and its files, verified against the announced digests.

Written against huggingface_hub 1.21. Files come over plain HTTP with ranges, never over hf-xet, whose transfers have
stood still without an end (huggingface/xet-core#883). Here no byte for `stall_s` seconds ends a connection, the next
one goes on where it ended, and a file that some connections in a row hardly bring further is given up.
"""

import hashlib
import io
import json
import logging
import re
from collections.abc import Iterator
from contextlib import contextmanager
from functools import partial
from pathlib import Path
from typing import Any, BinaryIO, Literal, Protocol

import httpx
from huggingface_hub import HfApi, RepoFile, errors, get_session, hf_hub_url, set_client_factory
from huggingface_hub.utils._headers import build_hf_headers
from huggingface_hub.utils._http import hf_raise_for_status

from tasks.adapters.clock import Clock
from tasks.adapters.transfer import Count, transfer
from tasks.contracts.errors import DigestMismatchError, InputError, PipelineError, UnavailableError
from tasks.contracts.plan import DatasetFile, HubFile, Source

log = logging.getLogger(__name__)

RepoType = Literal["model", "dataset"]

CONNECT_TIMEOUT_S = 10.0
STALL_S = 30.0
IDLE_CONNECTIONS = 4
IDLE_BYTES = 16 * 2**10  # a connection that ends with less brought nothing worth the name
LONGEST_PAUSE_S = 8.0
DOWNLOADS_OF_A_FILE = 2  # what a bad connection garbled comes right the second time
SERVER_ERROR = 500
TRY_AGAIN = frozenset({408, 429})
RANGE_IGNORED = 200
NAMES_QUOTED = 8
READ_BYTES = 8 * 2**20
DATASET = re.compile(r"^hf://datasets/(?P<repo>[^@\s]+)@(?P<revision>[^/\s]+)/(?P<file>\S+)$")


class Hub(Protocol):
    """Model and dataset repositories.

    Every method raises InputError when the repository, revision or file is not there or not open to us, and
    UnavailableError when the Hub does not answer.
    """

    def resolve(self, repo: str, revision: str) -> Source:
        """The commit that a branch, tag or commit of a model is now, and all its files as announced."""

    def pin_dataset(self, uri: str) -> DatasetFile:
        """The commit and digest that `hf://datasets/<org>/<name>@<revision>/<file>` has now."""

    def read_file(self, source: Source, path: str) -> bytes:
        """One of the source's files, small enough to be held in memory.

        Raises:
            InputError: it is larger than 8 MiB, or none of the source's files.
            DigestMismatchError: its bytes are not what was announced.
        """

    def download(self, source: Source, target: Path) -> None:
        """Bring the source's files under `target`, each under its path there.

        Raises:
            DigestMismatchError: a file's bytes are not what was announced; they are not left in `target`.
        """

    def read_dataset(self, dataset: DatasetFile) -> list[dict[str, Any]]:
        """The objects of a pinned JSONL file, a line each.

        Raises:
            DigestMismatchError: its bytes are not what was pinned.
        """


class HuggingFaceHub:
    """The Hub at an endpoint. One per process: it sets the time limits of huggingface_hub's own client."""

    def __init__(self, endpoint: str, token: str | None, clock: Clock, *, stall_s: float = STALL_S) -> None:
        """`token` is the only one ever sent; one that huggingface_hub finds on this machine is not."""
        self._endpoint, self._token, self._clock = endpoint.rstrip("/"), token, clock
        set_client_factory(partial(_client, stall_s))
        self._api = HfApi(endpoint=self._endpoint, token=token or False)

    def resolve(self, repo: str, revision: str) -> Source:
        """See Hub."""
        with self._translated("model", repo, revision):
            info = self._api.model_info(repo, revision=revision, files_metadata=True)
            if info.gated:
                self._api.auth_check(repo)
        siblings = sorted(info.siblings or [], key=lambda sibling: sibling.rfilename)
        files = tuple(_hub_file(sibling.rfilename, sibling.size, sibling.lfs, sibling.blob_id) for sibling in siblings)
        return Source(repo=repo, revision=revision, commit=str(info.sha), files=files)

    def pin_dataset(self, uri: str) -> DatasetFile:
        """See Hub."""
        parts = DATASET.match(uri)
        if parts is None:
            raise InputError(f"{uri} is no dataset file; expected hf://datasets/<org>/<name>@<revision>/<file>.")
        repo, revision, name = parts["repo"], parts["revision"], parts["file"]
        with self._translated("dataset", repo, revision, name):
            info = self._api.dataset_info(repo, revision=revision)
            if info.gated:
                self._api.auth_check(repo, repo_type="dataset")
            found = self._api.get_paths_info(repo, [name], revision=info.sha, repo_type="dataset")
        if not found or not isinstance(found[0], RepoFile):
            raise InputError(f"{uri}: dataset {repo} has no file {name} at {revision}. Mend the file's name.")
        file = _hub_file(name, found[0].size, found[0].lfs, found[0].blob_id)
        return DatasetFile(repo=repo, commit=str(info.sha), file=file)

    def read_file(self, source: Source, path: str) -> bytes:
        """See Hub."""
        file = next((file for file in source.files if file.path == path), None)
        if file is None or file.size_bytes > READ_BYTES:
            found = "is not there" if file is None else f"has {file.size_bytes} bytes"
            raise InputError(
                f"{source.repo}@{source.revision} {path} {found}, expected a file of at most {READ_BYTES} bytes. "
                "Choose another revision."
            )
        out = io.BytesIO()
        self._bring("model", source.repo, source.commit, file, out, lambda _: None)
        return out.getvalue()

    def download(self, source: Source, target: Path) -> None:
        """See Hub."""

        def move(file: HubFile, count: Count) -> None:
            path = target / file.path
            path.parent.mkdir(parents=True, exist_ok=True)
            fresh = path.with_name(f".{path.name}.partial")
            try:
                with fresh.open("wb") as out:
                    self._bring("model", source.repo, source.commit, file, out, count)
                fresh.replace(path)
            finally:
                fresh.unlink(missing_ok=True)

        transfer(f"download {source.repo}@{source.revision}", source.files, move, self._clock)

    def read_dataset(self, dataset: DatasetFile) -> list[dict[str, Any]]:
        """See Hub."""
        out = io.BytesIO()
        self._bring("dataset", dataset.repo, dataset.commit, dataset.file, out, lambda _: None)
        return _json_lines(out.getvalue(), f"dataset {dataset.repo}, {dataset.file.path}")

    def _bring(self, kind: RepoType, repo: str, commit: str, file: HubFile, out: BinaryIO, count: Count) -> None:
        """Write the whole file to `out`, verified."""
        what = f"{repo}@{commit[:12]} {file.path}"
        url = hf_hub_url(repo, file.path, repo_type=kind, revision=commit, endpoint=self._endpoint)
        actual = ""
        for _ in range(DOWNLOADS_OF_A_FILE):
            with self._translated(kind, repo, commit, file.path):
                actual = _Download(url, self._token, file, out, count, self._clock, what).run()
            if actual == file.digest:
                return
            log.warning("%s: its digest is %s, announced was %s", what, actual, file.digest)
        raise DigestMismatchError(
            what,
            expected=file.digest,
            actual=actual,
            do=f"{DOWNLOADS_OF_A_FILE} downloads brought these bytes and none was kept; ask who owns {repo}, or "
            "choose another revision.",
        )

    @contextmanager
    def _translated(self, kind: RepoType, repo: str, revision: str, file: str = "") -> Iterator[None]:
        """Turn every error of huggingface_hub and httpx into one of ours; the only place that knows them."""
        try:
            yield
        except errors.GatedRepoError as error:
            raise self._not_admitted(kind, repo) from error
        except errors.RepositoryNotFoundError as error:
            raise InputError(
                f"{kind} {repo} is not at {self._endpoint}, or is private and {self._token_in_words()} does not open "
                "it. Mend the name, or name a Secret with a token in source.token_secret."
            ) from error
        except errors.RevisionNotFoundError as error:
            raise InputError(
                f"{kind} {repo} has no revision {revision!r}; it has {self._revisions(kind, repo)}. Name one of these, "
                "or a commit."
            ) from error
        except errors.EntryNotFoundError as error:
            raise InputError(f"{kind} {repo} has no file {file} at {revision}. Mend the file's name.") from error
        except errors.HfHubHTTPError as error:
            raise self._refusal(error, f"{kind} {repo}") from error
        except errors.HFValidationError as error:
            raise InputError(f"{repo!r} is no repository's name: {str(error)[:120]}. Mend it.") from error
        except (httpx.HTTPError, errors.OfflineModeIsEnabled) as error:
            raise UnavailableError(
                f"{self._endpoint} does not answer for {kind} {repo} ({type(error).__name__}: {str(error)[:120]}). "
                "Is hub.endpoint in the site file right, and is the Hub up?"
            ) from error

    def _not_admitted(self, kind: RepoType, repo: str) -> InputError:
        page = f"{self._endpoint}/{'datasets/' if kind == 'dataset' else ''}{repo}"
        if self._token is None:
            return InputError(
                f"{kind} {repo} is gated and no token was given. Accept its conditions at {page}, put a token into a "
                "Secret and name that in source.token_secret."
            )
        return InputError(
            f"{kind} {repo} is gated and the token of source.token_secret is not admitted. Accept its conditions at "
            f"{page} with the account that the token belongs to."
        )

    def _refusal(self, error: errors.HfHubHTTPError, what: str) -> PipelineError:
        status = error.response.status_code if error.response is not None else SERVER_ERROR
        if _may_heal(status):
            return UnavailableError(f"{self._endpoint} answered {status} for {what}; a retry may help.")
        if status in {401, 403}:
            return InputError(
                f"{self._endpoint} refuses {what} ({status}) with {self._token_in_words()}. Check the Secret that "
                "source.token_secret names."
            )
        return InputError(
            f"{self._endpoint} answered {status} for {what}: {str(error.server_message)[:120]}; expected 200. Is "
            "hub.endpoint in the site file a Hub, and are the names in the spec the ones that it shows?"
        )

    def _revisions(self, kind: RepoType, repo: str) -> str:
        try:
            refs = self._api.list_repo_refs(repo, repo_type=kind)
        except (errors.HfHubHTTPError, httpx.HTTPError):
            return "others"
        names = [ref.name for ref in (*refs.branches, *refs.tags)]
        return ", ".join(names[:NAMES_QUOTED]) + (", ..." if len(names) > NAMES_QUOTED else "")

    def _token_in_words(self) -> str:
        return "the token of source.token_secret" if self._token else "no token"


class _Download:
    """One file from one address, over as many connections as it takes."""

    def __init__(
        self, url: str, token: str | None, file: HubFile, out: BinaryIO, count: Count, clock: Clock, what: str
    ) -> None:
        self._url, self._file, self._out, self._count, self._clock, self._what = url, file, out, count, clock, what
        # compressed, a range would be of other bytes
        self._headers = build_hf_headers(token=token or False) | {"Accept-Encoding": "identity"}
        self._digest, self._position = _digest_of(file), 0

    def run(self) -> str:
        """Write the file; its digest, in the form in which it was announced."""
        self._restart()
        failures = 0
        while self._position < self._file.size_bytes:
            before, reason = self._position, "it ended early"
            try:
                self._connect()
            except httpx.TransportError as error:
                reason = type(error).__name__
            except errors.HfHubHTTPError as error:
                if not _may_heal(error.response.status_code):
                    raise
                reason = f"status {error.response.status_code}"
            if self._position >= self._file.size_bytes:
                break
            failures = failures + 1 if self._position - before < IDLE_BYTES else 1
            self._pause(failures, reason)
        return self._file.digest.partition(":")[0] + ":" + str(self._digest.hexdigest())

    def _connect(self) -> None:
        headers = self._headers | ({"Range": f"bytes={self._position}-"} if self._position else {})
        with get_session().stream("GET", self._url, headers=headers) as response:
            if response.is_error:
                response.read()
            hf_raise_for_status(response)
            if self._position and response.status_code == RANGE_IGNORED:
                self._restart()
            for chunk in response.iter_bytes():
                self._out.write(chunk)
                self._digest.update(chunk)
                self._position += len(chunk)
                self._count(len(chunk))

    def _pause(self, failures: int, reason: str) -> None:
        where = f"{self._position} of {self._file.size_bytes} bytes"
        if failures >= IDLE_CONNECTIONS:
            raise UnavailableError(
                f"{self._what}: stands still at {where}; {failures} connections in a row ended so ({reason}). "
                "A retry may help."
            )
        log.warning("%s: interrupted at %s (%s), going on there", self._what, where, reason)
        self._clock.sleep(min(2.0 ** (failures - 1), LONGEST_PAUSE_S))

    def _restart(self) -> None:
        self._count(-self._position)
        self._digest, self._position = _digest_of(self._file), 0
        self._out.seek(0)
        self._out.truncate()


def _client(stall_s: float) -> httpx.Client:
    return httpx.Client(follow_redirects=True, timeout=httpx.Timeout(stall_s, connect=CONNECT_TIMEOUT_S))


def _may_heal(status: int) -> bool:
    return status >= SERVER_ERROR or status in TRY_AGAIN


def _hub_file(path: str, size_bytes: int | None, lfs: Any, blob_id: str | None) -> HubFile:
    digest = f"sha256:{lfs['sha256']}" if lfs else f"git-sha1:{blob_id}"
    return HubFile(path=path, digest=digest, size_bytes=size_bytes or 0)


def _digest_of(file: HubFile) -> Any:
    """A fresh digest; git's blob id is the sha1 of a header and the bytes (git-scm.com/book, Git Objects)."""
    if file.digest.startswith("sha256:"):
        return hashlib.sha256()
    return hashlib.sha1(b"blob %d\0" % file.size_bytes, usedforsecurity=False)


def _json_lines(data: bytes, what: str) -> list[dict[str, Any]]:
    lines = []
    for number, line in enumerate(data.splitlines(), start=1):
        if not line.strip():
            continue
        try:
            value = json.loads(line)
        except ValueError as error:
            raise InputError(f"{what}, line {number} is no JSON: {error}. Mend the dataset.") from error
        if not isinstance(value, dict):
            raise InputError(
                f"{what}, line {number} holds a {type(value).__name__}, expected an object. Mend the dataset."
            )
        lines.append(value)
    return lines
