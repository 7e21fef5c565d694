"""Requests to Airflow's REST API: logging in, renewing the token, and what a refused request means."""

import ssl
import time
import unicodedata
from collections.abc import Mapping
from functools import partial
from typing import Any, TypeVar

import httpx
from pydantic import BaseModel, ConfigDict, ValidationError
from typing_extensions import TypedDict

from slipway.cli.airflow.late_tls import LateContext
from slipway.cli.airflow.login import Login
from slipway.cli.deadline import within
from slipway.tasks.adapters.bounded_http import UnboundedAnswerError, bound
from slipway.tasks.adapters.hub.header_token import header_token
from slipway.tasks.contracts.base import parse_json
from slipway.tasks.contracts.errors import InputError, UnavailableError
from slipway.tasks.contracts.violations import violation_text

REQUEST_TIMEOUT_S = 15.0
ANSWER_S = 30.0
"""With everything that leads to it: connections, redirects and headers."""
LEAST_ANSWER_S = 5.0
"""What an answer may take once the command's own time is over: whoever stops waiting still says how things stand."""
QUOTED_CHARS = 256
EXAMPLE = "http://127.0.0.1:8080"


class Document(BaseModel):
    """A part of an answer of Airflow's that Slipway reads; it may hold more."""

    model_config = ConfigDict(frozen=True, allow_inf_nan=False)


D = TypeVar("D", bound=Document)


class _Token(Document):
    access_token: str


class _Violation(TypedDict, total=False):
    loc: list[str | int]
    msg: str


class _Refusal(Document):
    detail: str | list[_Violation] | dict[str, Any]


class Session:
    """An HTTP connection with a token. Not for use by several threads."""

    def __init__(self, address: str, login: Login, timeout_s: float | None = None) -> None:
        self._deadline = None if timeout_s is None else time.monotonic() + timeout_s
        self.address = _without_credentials(address.strip()).rstrip("/")
        self._user = _one_line(login.user, "SLIPWAY_AIRFLOW_USER")
        self._password = _one_line(login.password, "SLIPWAY_AIRFLOW_PASSWORD")
        self._token = header_token(login.token, "SLIPWAY_AIRFLOW_TOKEN") if login.token is not None else None
        try:
            self._client = httpx.Client(
                base_url=self.address,
                verify=LateContext(ssl.PROTOCOL_TLS_CLIENT),
                timeout=REQUEST_TIMEOUT_S,
                follow_redirects=True,
                headers={"Accept-Encoding": "identity"},
                event_hooks={"response": [partial(bound, answer_s=REQUEST_TIMEOUT_S)]},
            )
        except httpx.InvalidURL as error:
            raise self._no_address() from error

    def close(self) -> None:
        """Close the connection."""
        self._client.close()

    def get(
        self, model: type[D], path: str, query: Mapping[str, Any] | None = None, *, missing: InputError | None = None
    ) -> D:
        """The document at `path`; see `checked` for the errors."""
        return self.checked(model, self.send("GET", path, params=dict(query or {})), missing)

    def send(self, method: str, path: str, **request: Any) -> httpx.Response:
        """Send a request with the token; a token that Airflow no longer accepts is renewed once."""
        headers = request.pop("headers", {})
        fresh = self._token is None
        while True:
            if self._token is None:
                self._token = self._new_token()
            bearer = {"Authorization": f"Bearer {self._token}"}
            response = self._request(method, path, headers=headers | bearer, **request)
            if response.status_code != httpx.codes.UNAUTHORIZED or fresh or self._password is None:
                return response
            self._token, fresh = None, True

    def checked(self, model: type[D], response: httpx.Response, missing: InputError | None = None) -> D:
        """The response's document.

        Raises:
            InputError: Airflow refused the request; this is `missing` if the response is a 404. Or it answered with
                something else than this document.
            UnavailableError: Airflow failed to serve the request.
        """
        if response.is_success:
            return document_of(model, response)
        if response.status_code == httpx.codes.NOT_FOUND and missing is not None:
            raise missing
        request = f"{response.request.method} {response.request.url.path}"
        what = f"Airflow at {self.address} refused {request}"
        answer = f"{response.status_code}: {_detail(response)}"
        if response.is_server_error or response.status_code == httpx.codes.TOO_MANY_REQUESTS:
            raise UnavailableError(what, found=answer, remedy="Try again, or read Airflow's log.")
        denied = response.status_code in {httpx.codes.UNAUTHORIZED, httpx.codes.FORBIDDEN}
        raise InputError(what, found=answer, remedy="Check the token, or the role of the user." if denied else "")

    def _new_token(self) -> str:
        if not (self._user and self._password):
            raise InputError(
                f"Airflow at {self.address} needs a login",
                remedy="Set SLIPWAY_AIRFLOW_TOKEN, or SLIPWAY_AIRFLOW_USER and SLIPWAY_AIRFLOW_PASSWORD.",
            )
        body = {"username": self._user, "password": self._password}
        response = self._request("POST", "/auth/token", json=body)
        if response.status_code == httpx.codes.UNAUTHORIZED:
            raise InputError(
                f"Airflow at {self.address} refused user {self._user}",
                remedy="Check SLIPWAY_AIRFLOW_USER and SLIPWAY_AIRFLOW_PASSWORD.",
            )
        return header_token(self.checked(_Token, response).access_token, f"the token from Airflow at {self.address}")

    def _request(self, method: str, path: str, **request: Any) -> httpx.Response:
        try:
            return within(self._answer_s(), lambda: self._client.request(method, path, **request))
        except (httpx.InvalidURL, httpx.UnsupportedProtocol) as error:
            raise self._no_address() from error
        except httpx.LocalProtocolError:  # its text and its chain quote the header, which may hold a token
            raise InputError(
                f"a request to Airflow at {self.address} cannot be sent",
                found="a header that HTTP does not allow",
                remedy="Check SLIPWAY_AIRFLOW_TOKEN.",
            ) from None
        except (httpx.TooManyRedirects, UnboundedAnswerError, httpx.DecodingError) as error:
            raise not_airflow(f"{self.address}{path}", str(error)) from error
        except (httpx.TransportError, TimeoutError) as error:
            raise UnavailableError(
                f"Airflow at {self.address} does not answer",
                found=error,
                remedy="Check that Airflow is up and that SLIPWAY_AIRFLOW is right.",
            ) from error

    def _answer_s(self) -> float:
        if self._deadline is None:
            return ANSWER_S
        return min(ANSWER_S, max(LEAST_ANSWER_S, self._deadline - time.monotonic()))

    def _no_address(self) -> InputError:
        return InputError(
            "SLIPWAY_AIRFLOW is not an address",
            found=repr(self.address),
            expected=f"an address such as {EXAMPLE}",
            remedy="Correct SLIPWAY_AIRFLOW or --airflow.",
        )


def _without_credentials(address: str) -> str:
    """The address, which errors and links show. The user and password of a URL end at its @."""
    if "@" in address:
        raise InputError(
            "the address in SLIPWAY_AIRFLOW or --airflow must not hold a user or password",
            expected=f"an address such as {EXAMPLE}",
            remedy="Set SLIPWAY_AIRFLOW_USER and SLIPWAY_AIRFLOW_PASSWORD instead.",
        )
    return address


def _one_line(text: str | None, variable: str) -> str | None:
    """The text without the line break at its end; spaces may be part of a password."""
    line = text.strip("\r\n") if text is not None else None
    if line and any(unicodedata.category(character) in {"Cc", "Cs"} for character in line):
        raise InputError(
            f"{variable} cannot be used",
            found="a control character",
            expected="one line",
            remedy=f"Set {variable} again.",
        )
    return line


def document_of(model: type[D], response: httpx.Response) -> D:
    """A response's document.

    Raises:
        InputError: it is another one, or none.
    """
    url = str(response.request.url)
    try:
        return model.model_validate(parse_json(response.content, url))
    except InputError as error:
        raise not_airflow(url, response.headers.get("content-type", "no content type")[:QUOTED_CHARS]) from error
    except ValidationError as error:
        found = violation_text(error.errors(include_url=False)[0], model)
        raise not_airflow(url, found[:QUOTED_CHARS], f"a {model.__name__.strip('_')}") from error


def not_airflow(url: str, found: str, expected: str = "JSON") -> InputError:
    """The error about an answer that no Airflow 3 gives."""
    return InputError(
        f"{url} is not Airflow's API",
        found=found,
        expected=expected,
        remedy="Set SLIPWAY_AIRFLOW to the address of an Airflow 3.",
    )


def _detail(response: httpx.Response) -> str:
    try:
        refusal = document_of(_Refusal, response)
    except InputError:
        return response.reason_phrase
    detail = refusal.detail
    if isinstance(detail, list):
        detail = "; ".join(f"{'.'.join(map(str, one.get('loc') or ()))}: {one.get('msg')}" for one in detail)
    return " ".join(str(detail).split())[:QUOTED_CHARS].rstrip(".")
