"""When the kubelet restarts a container, and in what order it stops several. Pure but for the clock."""

from collections.abc import Mapping, Sequence
from datetime import UTC, datetime
from typing import Any

from ..objects.resources import Object
from .attempts import Attempt
from .pod_status import is_sidecar

NOTICE_S = 0.0
"""Ends are noticed at once, as by a kubelet with EventedPLEG. Without it a kubelet looks once a second."""
BACK_OFF_S = 10.0
BACK_OFF_MAX_S = 300.0
BACK_OFF_RESET_S = 600.0


def unnoticed_s(ended: Mapping[str, Any], notice_s: float) -> float:
    """Seconds until the next look at all containers, of one every `notice_s`, finds the end; 0 or less: it has."""
    if ended["reason"] == "StartError" or not notice_s:
        return 0.0
    ended_at = datetime.fromisoformat(ended["finishedAt"]).timestamp()
    return (ended_at // notice_s + 1) * notice_s - datetime.now(UTC).timestamp()


def restart_policy(pod: Object, container: Object) -> str:
    """The restart policy of a container: its pod's, unless it is a sidecar."""
    return "Always" if is_sidecar(container) else str(pod["spec"]["restartPolicy"])


def in_stop_order(pod: Object | None, names: Sequence[str]) -> list[Object]:
    """The containers of these names: sidecars last, and the one that started first as the very last."""
    if pod is None:
        return [{"name": name} for name in names]
    inits = pod["spec"].get("initContainers") or []
    mains = [*pod["spec"]["containers"], *(each for each in inits if not is_sidecar(each))]
    return [each for each in (*mains, *(each for each in reversed(inits) if is_sidecar(each))) if each["name"] in names]


def restarts(policy: str, exit_code: int, *, initial: bool) -> bool:
    """Whether a container that ended with `exit_code` is started again; `initial` for an init container."""
    if initial:
        return exit_code != 0 and policy != "Never"
    return policy == "Always" or (policy == "OnFailure" and exit_code != 0)


def back_off_s(attempt: Attempt, ended: Mapping[str, Any]) -> float:
    """Seconds until a restart is due; 0 or negative if it may start now."""
    started, finished = (datetime.fromisoformat(ended[name]) for name in ("startedAt", "finishedAt"))
    if attempt.number == 0 or (finished - started).total_seconds() > BACK_OFF_RESET_S:
        return 0.0
    delay_s: float = min(BACK_OFF_S * 2.0 ** min(attempt.number - 1, 10), BACK_OFF_MAX_S)
    return delay_s - (datetime.now(UTC) - finished).total_seconds()
