"""A refusal: what a gate, a drill or a person decided. Its task fails at once, with the reason in its log."""

import logging
from typing import TYPE_CHECKING, Any

import airflow.sdk
from airflow.providers.common.compat.sdk import AirflowFailException

from slipway.tasks.contracts.redaction import bounded
from slipway.tasks.contracts.stored.release import WHY_KEY

if TYPE_CHECKING:
    from airflow.sdk import Context

log = logging.getLogger(__name__)

HAS_POLICIES = hasattr(airflow.sdk, "RetryPolicy")
"""Whether Airflow asks a task's policy before it tries again: from 3.3 on."""

if HAS_POLICIES:

    class Refusal(SystemExit):
        """Ends a task that must not be tried again. Airflow logs any other exception with its traceback."""

    class FailRefusals(airflow.sdk.RetryPolicy):
        """Fails a task that was refused, which Airflow would try again after a SystemExit."""

        def evaluate(self, exception: BaseException, *_: Any, **__: Any) -> airflow.sdk.RetryDecision:
            """Fail after a refusal; after anything else, do as without a policy."""
            refused = isinstance(exception, Refusal)
            return airflow.sdk.RetryDecision.fail() if refused else airflow.sdk.RetryDecision.default()

    NO_RETRY: dict[str, Any] = {"retry_policy": FailRefusals()}
else:

    class Refusal(AirflowFailException):  # type: ignore[no-redef]
        """Ends a task that must not be tried again."""

    NO_RETRY = {}
"""What a task that may be refused is made with."""


def refused(context: "Context", why: str) -> Refusal:
    """What ends the task, which leaves the reason in its log and for whoever is told of it."""
    context["ti"].xcom_push(key=WHY_KEY, value=bounded(why))
    log.error(why)
    refusal = Refusal(why)
    refusal.code = 1  # Airflow logs it beside the words "Task exited"
    return refusal
