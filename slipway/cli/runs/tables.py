"""Gates and channels as text and tables for a person. Pure."""

from rich.table import Table
from rich.text import Text

from slipway.tasks.contracts.measured.gate import GateReport, Judgement, Verdict, interval_words
from slipway.tasks.contracts.stored.adapters import Adapters
from slipway.tasks.contracts.stored.channel import Channel

VERDICT_STYLES = {Verdict.PASSED: "green", Verdict.INCONCLUSIVE: "yellow", Verdict.FAILED: "bold red"}
COMMIT_DIGITS = 12
NEWEST_EVENTS = 5


def gate_table(report: GateReport) -> Table:
    """Every expectation with its observation and limit."""
    table = Table(title=f"gate of {report.release_id}: {report.verdict}", title_justify="left", title_style="bold")
    for name in ("expectation", "observed", "limit", "n", "verdict"):
        table.add_column(name, justify="right" if name in {"observed", "limit", "n"} else "left")
    for judgement in report.judgements:
        table.add_row(
            judgement.what,
            _observed(judgement),
            _limit(judgement),
            str(judgement.count),
            Text(judgement.verdict.value, VERDICT_STYLES[judgement.verdict]),
        )
    for line in report.not_applicable:
        table.add_row(Text(line, "dim"), "", "", "", Text("not judged", "dim"))
    return table


def channel_lines(channel: Channel) -> list[str]:
    """The live release, the previous ones, and the newest changes."""
    live = channel.live
    lines = [f"live      {live.release_id} since {live.since:%Y-%m-%d %H:%M:%S %Z}" if live else "live      nothing"]
    lines += [f"previous  {entry.release_id}" for entry in channel.previous]
    for event in channel.history[:NEWEST_EVENTS]:
        reason = f": {event.reason}" if event.reason else ""
        lines.append(f"history   {event.at:%Y-%m-%d %H:%M:%S %Z}  {event.event:<11} {event.release_id}{reason}")
    return lines


def adapter_lines(adapters: Adapters | None) -> list[str]:
    """The adapters that the live release serves beside its own, and the newest changes of them."""
    if adapters is None:
        return []
    lines = [
        f"adapter   {entry.name}  {entry.repo}@{entry.revision} ({entry.commit[:12]})"
        f"{'' if entry.name in adapters.listed else ', not listed yet'}"
        for entry in adapters.current
    ]
    for each in adapters.sets:
        names, reason = ", ".join(entry.words for entry in each.adapters), f": {each.reason}" if each.reason else ""
        lines.append(f"adapters  {each.at:%Y-%m-%d %H:%M:%S %Z}  {each.event:<11} {names or 'none'}{reason}")
    return lines


def _observed(judgement: Judgement) -> str:
    if judgement.observed is None:
        return "no data"
    observed = f"{judgement.observed:.4g} {judgement.unit}".rstrip()
    return f"{observed} {interval_words(judgement.interval)}".rstrip()


def _limit(judgement: Judgement) -> str:
    sign = "≤" if judgement.expectation.is_upper else "≥"
    return f"{sign} {judgement.limit:g} {judgement.unit}".rstrip()
