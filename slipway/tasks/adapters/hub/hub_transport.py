"""A transport of httpx over urllib3: a file's bytes cost the Hub's client a third of the CPU that httpx's own takes.

httpx 0.28 parses bodies in Python (h11), 64 KiB at a time, under the interpreter's lock: 3.2 CPU s/GB, so 0.3 GB/s
however many connections. urllib3 2.8 reads them by the standard library's http.client: 1.0 (docs/decisions/0032).
"""

import logging
import urllib.request
from collections.abc import Iterator
from contextlib import contextmanager

import httpx
import urllib3
from typing_extensions import override
from urllib3 import exceptions

READ_BYTES = 2**18
FIRST_FINAL_STATUS = 200
IDLE_CONNECTIONS = 256  # that are kept to a host: as many as a site may use at a time


def transport() -> httpx.BaseTransport | None:
    """The transport for a client; None, which is httpx's own, where the environment names a proxy."""
    return None if urllib.request.getproxies().keys() - {"no"} else _Urllib3Transport()


class _Urllib3Transport(httpx.BaseTransport):
    def __init__(self) -> None:
        # it warns of malformed headers with the whole address, which may be signed
        logging.getLogger("urllib3.connection").setLevel(logging.ERROR)
        self._pool = urllib3.PoolManager(
            maxsize=IDLE_CONNECTIONS,
            # the authorities that httpx trusts, also by SSL_CERT_FILE
            ssl_context=httpx.create_ssl_context(),
        )

    @override
    def handle_request(self, request: httpx.Request) -> httpx.Response:
        limits = request.extensions.get("timeout", {})
        with _translated(request):
            answer = self._pool.request(
                request.method,
                str(request.url),
                body=request.read() or None,
                headers=dict(request.headers),
                timeout=urllib3.Timeout(connect=limits.get("connect"), read=limits.get("read")),
                retries=False,
                redirect=False,
                preload_content=False,
                decode_content=False,
            )
        if answer.status < FIRST_FINAL_STATUS:
            # http.client reads on only after 100; the actual answer would be taken for that of the next request
            answer.close()
            raise httpx.RemoteProtocolError(f"the server sends status {answer.status} first", request=request)
        # http.client decodes headers as Latin-1, whatever they are
        headers = [(name.encode("latin-1"), value.encode("latin-1")) for name, value in answer.headers.iteritems()]
        return httpx.Response(answer.status, headers=headers, stream=_Body(answer, request))

    @override
    def close(self) -> None:
        self._pool.clear()


class _Body(httpx.SyncByteStream):
    def __init__(self, answer: urllib3.BaseHTTPResponse, request: httpx.Request) -> None:
        self._answer, self._request = answer, request

    @override
    def __iter__(self) -> Iterator[bytes]:
        while True:
            with _translated(self._request):
                # what has arrived, and no waiting for more, so that the caller sees how slowly it comes
                chunk = self._answer.read1(READ_BYTES)
            if not chunk:
                return
            yield chunk

    @override
    def close(self) -> None:
        self._answer.close()


@contextmanager
def _translated(request: httpx.Request) -> Iterator[None]:
    """Raise httpx's error for each error of urllib3."""
    try:
        yield
    except (exceptions.NewConnectionError, exceptions.SSLError) as error:
        raise httpx.ConnectError(str(error), request=request) from error
    except exceptions.ConnectTimeoutError as error:
        raise httpx.ConnectTimeout(str(error), request=request) from error
    except exceptions.ReadTimeoutError as error:
        raise httpx.ReadTimeout(str(error), request=request) from error
    except (exceptions.LocationValueError, exceptions.URLSchemeUnknown) as error:
        raise httpx.UnsupportedProtocol(str(error), request=request) from error
    except exceptions.HTTPError as error:
        raise httpx.RemoteProtocolError(str(error), request=request) from error
