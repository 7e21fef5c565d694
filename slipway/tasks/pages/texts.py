"""Texts of the pages: events and judgements in words, and strangers' texts in bounds. Pure."""

from datetime import datetime

from slipway.tasks.contracts.measured.canary import CanaryRecord
from slipway.tasks.contracts.measured.gate import GateReport, Judgement, Verdict, interval_words
from slipway.tasks.contracts.redaction import MESSAGE_CHARS, bounded, printable, redacted
from slipway.tasks.contracts.spec.gate import Expectation
from slipway.tasks.contracts.stored.channel import ChannelEvent

REASON_CHARS = 300
NAMED = 2
"""How many expectations that did not pass a headline names."""
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
NAMES = {
    "ttft_ms": "TTFT",
    "itl_ms": "ITL",
    "latency_ms": "latency",
    "output_tokens_per_s": "output",
    "requests_per_s": "throughput",
    "goodput_per_s": "goodput",
    "kl_divergence": "divergence from the source",
}
"""Metrics whose names are not words."""


def shown(text: str, limit: int = MESSAGE_CHARS) -> str:
    """A text that anybody may have written: at most `limit` characters, without tokens, control characters visible."""
    return printable(bounded(redacted(text), limit))


def when(moment: datetime) -> str:
    """A moment, to the minute."""
    return f"{moment:%Y-%m-%d %H:%M} UTC"


def split_words(canary: CanaryRecord) -> str:
    """Who answers the requests while a canary runs, as sentences."""
    match canary.phase:
        case "mirroring":
            copies = f"{canary.candidate} gets a copy of {canary.mirror} % of the requests"
            return f"{copies}. {canary.live} answers all of them."
        case "rolled-back":
            return f"{canary.candidate} did not pass its canary. {canary.live} answers all requests."
        case phase:
            passed = " It passed its canary." if phase == "passed" else ""
            split = f"{canary.candidate} answers {canary.percent} % of the requests, {canary.live} the others"
            return f"{split}.{passed}"


def failing(report: GateReport | None) -> list[Judgement]:
    """The judgements that did not pass, the worst first."""
    order = list(Verdict)
    found = [each for each in report.judgements if each.verdict is not Verdict.PASSED] if report else []
    return sorted(found, key=lambda each: -order.index(each.verdict))


def judged(judgement: Judgement) -> str:
    """A judgement in words, such as `2 of 3 smoke answers wrong`."""
    metric, observed = getattr(judgement.expectation, "metric", ""), judgement.observed
    if judgement.verdict is Verdict.INCONCLUSIVE or observed is None:
        return judgement.why
    if metric not in COUNTED:
        return compared(judgement)
    counted, wrong = COUNTED[metric]
    share = observed if judgement.expectation.is_upper else 1 - observed
    return f"{round(share * judgement.count)} of {judgement.count} {counted} {wrong}"


def compared(judgement: Judgement) -> str:
    """A judgement as its number and its limit, such as `answer accuracy 0.33, at least 0.95 needed`."""
    line, observed = judgement.expectation, judgement.observed
    if observed is None or not isinstance(line, Expectation):
        return judgement.why
    name = NAMES.get(line.metric, line.metric.replace("_", " "))
    where = judgement.what.removeprefix(line.metric).removesuffix(f" / {line.of}")
    unit = (
        f" times {'that of live' if line.of == 'live' else 'that of the source'}" if line.of else f" {judgement.unit}"
    )
    number = f"{observed:.3g}{unit.rstrip()} {interval_words(judgement.interval)}".rstrip()
    limit = f"at most {line.limit:g} allowed" if line.is_upper else f"at least {line.limit:g} needed"
    return f"{name}{where}{':' if ' at ' in where else ''} {number}, {limit}"


def explained(judgement: Judgement) -> str:
    """A judgement that did not pass in words, with its number and its limit."""
    if judgement.verdict is Verdict.INCONCLUSIVE:
        return judgement.why
    counted, numbers = judged(judgement), compared(judgement)
    return f"{counted}: {numbers}" if counted != numbers else numbers


def headline(report: GateReport) -> str:
    """What the gate says of a release, such as `refused: answer accuracy 0.33, at least 0.95 needed`."""
    lines = failing(report)
    if not lines:
        return f"passed: all {len(report.judgements)} expectations hold"
    more = f", and {len(lines) - NAMED} more" if len(lines) > NAMED else ""
    return f"refused: {' and '.join(explained(line) for line in lines[:NAMED])}{more}"


def why(event: ChannelEvent, report: GateReport | None) -> str:
    """An event in words, such as `refused: 2 of 3 smoke answers wrong`; a refusal with the gate's worst line."""
    lines = failing(report) if event.event == "refused" else []
    more = f", and {len(lines) - 1} more" if len(lines) > 1 else ""
    reason = f"{judged(lines[0])}{more}" if lines else event.reason
    return f"{EVENTS[event.event]}: {shown(reason, REASON_CHARS)}" if reason else EVENTS[event.event]
