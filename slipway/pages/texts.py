"""Texts of the pages: events and judgements in words, and strangers' texts in bounds. Pure."""

from datetime import datetime

from slipway.tasks.contracts.measured.gate import GateReport, Judgement, Verdict
from slipway.tasks.contracts.redaction import MESSAGE_CHARS, bounded, printable, redacted
from slipway.tasks.contracts.stored.channel import ChannelEvent

REASON_CHARS = 300
EVENTS = {"promoted": "promoted", "rolled-back": "rolled back", "refused": "refused"}
COUNTED = {
    "smoke_accuracy": ("smoke answers", "wrong"),
    "answer_accuracy": ("answers", "wrong"),
    "empty_rate": ("answers", "empty"),
    "repetition_rate": ("answers", "repeating themselves"),
    "truncated_rate": ("answers", "cut off"),
    "error_rate": ("requests", "failed"),
}
"""Metrics that are a share of what was counted: what, and what is wrong with those that count against it."""


def shown(text: str, limit: int = MESSAGE_CHARS) -> str:
    """A text that anybody may have written: at most `limit` characters, without tokens, control characters visible."""
    return printable(redacted(bounded(text, limit)))


def when(moment: datetime) -> str:
    """A moment, to the minute."""
    return f"{moment:%Y-%m-%d %H:%M} UTC"


def failing(report: GateReport | None) -> list[Judgement]:
    """The judgements that did not pass, the worst first."""
    order = list(Verdict)
    found = [each for each in report.judgements if each.verdict is not Verdict.PASSED] if report else []
    return sorted(found, key=lambda each: -order.index(each.verdict))


def judged(judgement: Judgement) -> str:
    """A judgement in words, such as `2 of 3 smoke answers wrong`."""
    metric, observed = getattr(judgement.expectation, "metric", ""), judgement.observed
    if judgement.verdict is Verdict.INCONCLUSIVE or observed is None or metric not in COUNTED:
        return judgement.why
    counted, wrong = COUNTED[metric]
    share = observed if judgement.expectation.is_upper else 1 - observed
    return f"{round(share * judgement.count)} of {judgement.count} {counted} {wrong}"


def why(event: ChannelEvent, report: GateReport | None) -> str:
    """An event in words, such as `refused: 2 of 3 smoke answers wrong`; a refusal with the gate's worst line."""
    lines = failing(report) if event.event == "refused" else []
    more = f", and {len(lines) - 1} more" if len(lines) > 1 else ""
    reason = f"{judged(lines[0])}{more}" if lines else event.reason
    return f"{EVENTS[event.event]}: {shown(reason, REASON_CHARS)}" if reason else EVENTS[event.event]
