"""Documents of the object store as the pages read them: often, so each is fetched again only when it has changed.

What was read a moment ago is shown as it was, and looked at again behind the reader's back; what is older than
STALE_S is read before the page is shown. So a page never waits for more than what nobody has looked at lately.
"""

import functools
import logging
import threading
import time
from collections import OrderedDict
from collections.abc import Callable, Mapping
from concurrent.futures import ThreadPoolExecutor
from typing import Any, NamedTuple

from slipway.airflow.step_documents import site_client
from slipway.tasks.contracts.redaction import bounded, redacted
from slipway.tasks.pages.reading import Parse, Stored, parsed

MAX_BYTES = 4 << 20
"""The largest document that is read. A channel with 200 events of 2,000 characters has half a megabyte."""
MAX_KEPT_BYTES = 128 << 20
"""The most that all kept documents have together, as they are stored."""
AT_ONCE = 16
AGAIN_AT_ONCE, PAINTED_S = 1, 0.5
"""Documents that are read again at a time, and how long that waits: the page that shows them is painted first."""
FRESH_S, STALE_S = 5.0, 60.0
CLIENT_S = 600
"""The credentials of Airflow's connection may be others after that."""
CONNECT_S, READ_S = 2, 5
REASON_CHARS = 300
MISSING, UNCHANGED = ("404", "NoSuchKey"), ("304", "NotModified")

log = logging.getLogger(__name__)


class _Kept(NamedTuple):
    """A document as it was read: when, with which ETag, and how many bytes it has; without an ETag there was none."""

    read_s: float
    etag: str
    size_bytes: int
    stored: Stored


class Documents:
    """A reader of small documents at `s3://` URIs, for all threads of a process."""

    def __init__(self, client: Callable[[], Any], clock: Callable[[], float] = time.monotonic) -> None:
        """`client` returns a boto3 client, which several threads use at once; `clock` counts seconds."""
        self._client, self._clock = client, clock
        self._kept: OrderedDict[str, _Kept] = OrderedDict()
        self._kept_bytes = 0
        self._refreshing: set[str] = set()
        self._lock = threading.Lock()
        self._pool = ThreadPoolExecutor(AT_ONCE, "slipway-documents")
        self._again = ThreadPoolExecutor(AGAIN_AT_ONCE, "slipway-documents-again")

    def read(self, wanted: Mapping[str, Parse]) -> dict[str, Stored]:
        """Every document by its URI, parsed. One that cannot be read says why, and the others are read all the same."""
        now_s = self._clock()
        known = {uri: kept for uri in wanted if (kept := self._kept.get(uri)) and now_s - kept.read_s <= STALE_S}
        away: list[str] = []
        unknown = [uri for uri in wanted if uri not in known]
        fetched = self._pool.map(lambda uri: self._fetched(uri, wanted[uri], away), unknown)
        self._refresh({uri: wanted[uri] for uri, kept in known.items() if now_s - kept.read_s > FRESH_S})
        return dict(zip(unknown, fetched, strict=True)) | {uri: kept.stored for uri, kept in known.items()}

    def _refresh(self, due: Mapping[str, Parse]) -> None:
        """Read documents again, without waiting for that."""
        with self._lock:
            begun = due.keys() - self._refreshing
            self._refreshing |= begun
        away: list[str] = []
        if begun:
            self._again.submit(time.sleep, PAINTED_S)
        for uri in begun:
            self._again.submit(self._refreshed, uri, due[uri], away)

    def _refreshed(self, uri: str, parse: Parse, away: list[str]) -> None:
        try:
            self._fetched(uri, parse, away)
        finally:
            with self._lock:
                self._refreshing.discard(uri)

    def _fetched(self, uri: str, parse: Parse, away: list[str]) -> Stored:
        """The document as it is now. The first that got no answer says why in `away`, so that the others do not try."""
        if away:
            return Stored(problem=away[0])
        try:
            return self._read_again(uri, parse)
        except Exception as error:  # botocore's errors have no common base class
            log.exception("%s cannot be read", uri)
            if (code := _code(error)) is not None:
                return Stored(problem=f"the object store answered {code}")
            away.append(_why_no_answer(error))
            return Stored(problem=away[0])

    def _read_again(self, uri: str, parse: Parse) -> Stored:
        client = self._client()
        bucket, _, key = uri.removeprefix("s3://").partition("/")
        kept = self._kept.get(uri)
        changed = {"IfNoneMatch": kept.etag} if kept and kept.etag else {}
        try:
            answer = client.get_object(Bucket=bucket, Key=key, **changed)
        except client.exceptions.ClientError as error:
            code = _code(error)
            if kept and code in UNCHANGED:
                return self._keep(uri, kept._replace(read_s=self._clock())).stored
            if code in MISSING:
                return self._keep(uri, _Kept(self._clock(), "", len(uri), Stored())).stored
            raise
        with answer["Body"] as body:
            data: bytes = body.read(MAX_BYTES + 1)
        if len(data) > MAX_BYTES:
            return Stored(problem=f"it has more than {MAX_BYTES >> 20} MiB")
        return self._keep(uri, _Kept(self._clock(), answer["ETag"], len(data), parsed(data, parse))).stored

    def _keep(self, uri: str, kept: _Kept) -> _Kept:
        """Keep a document as the newest, and forget the oldest ones if all are too large."""
        with self._lock:
            self._drop(uri)
            self._kept[uri] = kept
            self._kept_bytes += kept.size_bytes
            while self._kept_bytes > MAX_KEPT_BYTES:
                self._drop(next(iter(self._kept)))
        return kept

    def _drop(self, uri: str) -> None:
        if dropped := self._kept.pop(uri, None):
            self._kept_bytes -= dropped.size_bytes


def client_of(aws_conn_id: str) -> Any:
    """The pages' client of an Airflow connection, which soon gives up on a store that does not answer."""
    return _client_of(aws_conn_id, int(time.monotonic() // CLIENT_S))


@functools.lru_cache(maxsize=1)
def _client_of(aws_conn_id: str, _period: int) -> Any:
    """The client of one of the periods of CLIENT_S seconds."""
    from botocore.config import Config  # noqa: PLC0415 - boto3 takes half a second

    config = Config(
        connect_timeout=CONNECT_S,
        read_timeout=READ_S,
        retries={"total_max_attempts": 2},
        max_pool_connections=AT_ONCE,
    )
    return site_client(aws_conn_id, config)


def _code(error: Exception) -> str | None:
    """The code of the store's answer; None if it gave none."""
    answer: Any = getattr(error, "response", None)
    return str(answer["Error"]["Code"]) if answer else None


def _why_no_answer(error: Exception) -> str:
    """What the page says of a store that gave no answer: it cannot be reached, or this process may not ask it."""
    from botocore.exceptions import ConnectionError as NoConnection  # noqa: PLC0415 - boto3 takes half a second
    from botocore.exceptions import HTTPClientError  # noqa: PLC0415

    if isinstance(error, NoConnection | HTTPClientError | OSError):
        return "the object store does not answer"
    return f"Airflow's connection to the object store does not work: {bounded(redacted(str(error)), REASON_CHARS)}"
