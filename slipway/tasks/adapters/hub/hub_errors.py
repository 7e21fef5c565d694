"""Turns errors of huggingface_hub and httpx into Slipway's."""

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Literal

import httpx
from huggingface_hub import errors

from slipway.tasks.adapters.bounded_http import UnboundedAnswerError
from slipway.tasks.contracts.errors import InputError, PipelineError, UnavailableError
from slipway.tasks.contracts.fit.site_objects import HUB_POLICY

RepoType = Literal["model", "dataset"]

BASE_POLICY = "hub"  # k8s_manifests/base/networkpolicy-slipway-hub.yaml
SERVER_ERROR = 500
TRANSIENT = frozenset({408, 429})
DENIED = frozenset({401, 403})
QUOTED_CHARS = 120
FOREIGN = (ValueError, TypeError, KeyError, AttributeError, IndexError, RecursionError)
"""What huggingface_hub 1.21 and our own models raise for HTML, for values of other types and for absent fields."""
IS_IT_A_HUB = "Check that hub.endpoint in the site file is a Hub, and that no login page or proxy answers in its place."


class NoSuchRevisionError(InputError):
    """The repository exists, and has no such branch, tag or commit."""


def is_transient(status: int) -> bool:
    """Whether a later request may succeed after this status."""
    return status >= SERVER_ERROR or status in TRANSIENT


@dataclass(frozen=True)
class HubErrors:
    """What messages about one Hub say besides the error."""

    endpoint: str
    has_token: bool
    revisions: Callable[[RepoType, str], str]
    """Lists a repository's branches and tags for a message."""

    @contextmanager
    def translated(self, kind: RepoType, repo: str, revision: str, file: str = "") -> Iterator[None]:
        """Raise Slipway's error for each error of huggingface_hub and httpx."""
        try:
            yield
        except errors.EntryNotFoundError as error:
            raise InputError(
                f"{kind} {repo} has no file {file} at {revision}", remedy="Correct the file's name."
            ) from error
        except errors.HfHubHTTPError as error:
            raise self._of_response(error, kind, repo, revision) from error
        except errors.HFValidationError as error:
            raise InputError(
                f"{repo!r} is not the name of a repository: {str(error)[:QUOTED_CHARS]}",
                remedy="Correct the name.",
            ) from error
        except UnboundedAnswerError as error:
            raise InputError(
                f"{self.endpoint} does not answer as a Hub for {kind} {repo}", found=error, remedy=IS_IT_A_HUB
            ) from error
        except (httpx.HTTPError, httpx.InvalidURL, errors.OfflineModeIsEnabled) as error:
            raise UnavailableError(
                f"{self.endpoint} does not answer for {kind} {repo}",
                found=f"{type(error).__name__}: {str(error)[:QUOTED_CHARS]}",
                remedy="Check hub.endpoint in the site file, and that the Hub is up. On a cluster that enforces "
                f"network policies, {BASE_POLICY} or {HUB_POLICY} has to allow it: set hub.networks in the site file "
                "and run `slipway setup`.",
            ) from error
        except FOREIGN as error:
            reason = " ".join(str(error)[: 4 * QUOTED_CHARS].split())[:QUOTED_CHARS]
            raise InputError(
                f"{self.endpoint} does not answer as a Hub for {kind} {repo}",
                found=f"{type(error).__name__}: {reason}",
                remedy=IS_IT_A_HUB,
            ) from error

    def _of_response(self, error: errors.HfHubHTTPError, kind: RepoType, repo: str, revision: str) -> PipelineError:
        match error:
            case errors.GatedRepoError():
                return self._gated(kind, repo)
            case errors.RepositoryNotFoundError():
                token = "the token of source.token_secret" if self.has_token else "no token"
                return InputError(
                    f"{kind} {repo} does not exist at {self.endpoint}, or is private and {token} gives no access to it",
                    remedy="Correct the name, or name a Secret with a token in source.token_secret.",
                )
            case errors.RevisionNotFoundError():
                return NoSuchRevisionError(
                    f"{kind} {repo} has no revision {revision!r}",
                    expected=f"one of {self.revisions(kind, repo)}, or a commit",
                    remedy="Correct the revision.",
                )
            case _:
                return self._refusal(error, f"{kind} {repo}")

    def _gated(self, kind: RepoType, repo: str) -> InputError:
        page = f"{self.endpoint}/{'datasets/' if kind == 'dataset' else ''}{repo}"
        if not self.has_token:
            return InputError(
                f"{kind} {repo} is gated and there is no token",
                remedy=f"Accept its conditions at {page}, put a token into a Secret and name that in "
                "source.token_secret.",
            )
        return InputError(
            f"{kind} {repo} is gated and the token of source.token_secret has no access to it",
            remedy=f"Accept its conditions at {page} with the account that the token belongs to.",
        )

    def _refusal(self, error: errors.HfHubHTTPError, subject: str) -> PipelineError:
        status = error.response.status_code if error.response is not None else SERVER_ERROR
        if is_transient(status):
            return UnavailableError(f"{self.endpoint} answered {status} for {subject}", remedy="Run the step again.")
        if status in DENIED:
            return InputError(
                f"{self.endpoint} denies access to {subject}",
                found=f"status {status} with {'the' if self.has_token else 'no'} token of source.token_secret",
                remedy="Check the Secret that source.token_secret names.",
            )
        return InputError(
            f"{self.endpoint} answered {status} for {subject}",
            found=str(error.server_message)[:QUOTED_CHARS],
            expected="200",
            remedy="Check that hub.endpoint in the site file is a Hub, and that it shows the names in the spec.",
        )
