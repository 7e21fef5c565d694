"""Why a server gave no answer, in a person's words instead of an HTTP client's. Pure: it reads an exception."""

from collections.abc import Iterator

MOST_CAUSES = 20
UNTRUSTED = "its certificate is not trusted"
WORDS = {
    "SSLCertVerificationError": UNTRUSTED,
    "gaierror": "its name is not known",
    "NameResolutionError": "its name is not known",
    "ConnectionRefusedError": "connection refused",
    "ConnectionResetError": "the connection broke off",
    "BrokenPipeError": "the connection broke off",
    "ProtocolError": "the connection broke off",
    "RemoteDisconnected": "the connection broke off",
    "IncompleteRead": "the connection broke off",
    "ServerDisconnectedError": "the connection broke off",
    "ConnectTimeoutError": "no answer in time",
    "ReadTimeoutError": "no answer in time",
    "TimeoutError": "no answer in time",
}
"""What happened, by the name of an exception's class. The classes are those of Python, urllib3 2 and aiohttp 3."""


def why_no_answer(error: BaseException) -> str:
    """One short clause about the exception of any HTTP client: the innermost cause that says something."""
    chain = list(_causes(error))
    for cause in reversed(chain):
        for kind in type(cause).__mro__:
            if kind.__name__ in WORDS:
                return WORDS[kind.__name__]
    system = next((cause.strerror for cause in reversed(chain) if isinstance(cause, OSError) and cause.strerror), None)
    return system.lower() if system else "no HTTP answer"


def _causes(error: BaseException) -> Iterator[BaseException]:
    """The exception and what led to it; urllib3 keeps a cause in `reason` as well."""
    current: BaseException | None = error
    for _ in range(MOST_CAUSES):
        if current is None:
            return
        yield current
        reason = getattr(current, "reason", None)
        current = current.__cause__ or (reason if isinstance(reason, BaseException) else None) or current.__context__
