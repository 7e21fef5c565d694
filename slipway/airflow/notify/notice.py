"""What a notification says, and how it is written for each destination. Pure.

Commit messages, answers and reasons are texts of strangers. In a message they are no markup, no link and no mention.
"""

import html
import re
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field

from slipway.airflow.doc_text import fenced
from slipway.tasks.contracts.notifications import PLACEHOLDER, Event
from slipway.tasks.contracts.redaction import bounded, printable, redacted

LINE_CHARS = 500
MAX_LINES = 30
MARKDOWN_CHARS = 2000
"""Discord takes no longer message (discord.com/developers/docs/resources/message)."""
KEY = "slipway"
"""The key of the notice in a notifier's context."""
INERT = str.maketrans({"<": "\u2039", ">": "\u203a", "@": "\uff20", "`": "\u02cb"})
"""Characters that begin tags, mentions or the end of a code block, and what stands for them."""
WWW = re.compile(r"(?i)(www)\.")
TITLES: Mapping[Event, str] = {
    "promoted": "{model}: {release} is live",
    "refused": "{model}: {release} was refused",
    "rolled-back": "{model}: rolled back, {release} is live again",
    "waiting-for-approval": "{model}: {release} waits for approval",
    "drill-failed": "{model}: the drill of its rollback failed",
}


@dataclass(frozen=True)
class Notice:
    """One event of a model.

    Args:
        event: what happened.
        model: the model's name.
        at: when, in ISO 8601.
        run_url: page of the Airflow run; empty where Airflow does not know its own address, as the other addresses.
        dag_id, run_id: the run.
        release: id of the release that the event is about; empty if none was planned.
        why: one line each, the decisive ones first. Texts of strangers.
        report_url, approval_url: pages that a person can open; empty if there is none.
        release_uri, evidence_uri: where the object store has the release and its evidence; empty if it has none.
        commit, revision: of the model at the Hub; empty if unknown.
        measured: what the gate observed, by metric.
    """

    event: Event
    model: str
    at: str
    dag_id: str
    run_id: str
    release: str = ""
    why: tuple[str, ...] = ()
    run_url: str = ""
    report_url: str = ""
    approval_url: str = ""
    release_uri: str = ""
    evidence_uri: str = ""
    commit: str = ""
    revision: str = ""
    measured: Mapping[str, float] = field(default_factory=dict)

    @property
    def title(self) -> str:
        """One line for a subject or a headline; it holds no text of strangers."""
        return TITLES[self.event].format(model=self.model, release=self.release or "a release")

    @property
    def lines(self) -> tuple[str, ...]:
        """Why, as bounded lines without secrets and control characters."""
        shown = [bounded(" ".join(printable(redacted(line)).splitlines()), LINE_CHARS) for line in self.why[:MAX_LINES]]
        more = [f"and {len(self.why) - MAX_LINES} more lines"] if len(self.why) > MAX_LINES else []
        return (*shown, *more)

    @property
    def links(self) -> dict[str, str]:
        """Addresses to open, by what is behind them."""
        named = {"Approve or reject": self.approval_url, "Report": self.report_url, "Run": self.run_url}
        return {name: url for name, url in named.items() if url}


def filled_in(text: str, notice: Notice) -> str:
    """Replace the placeholders of an argument in one pass: braces in a stranger's text stay as they are.

    `text` holds placeholders of PLACEHOLDERS alone, which its contract has checked.
    """
    return PLACEHOLDER.sub(lambda match: VALUES[match[1]](notice), text)


def plain(notice: Notice) -> str:
    """Text for wherever markup may or may not be read: whatever reads it finds no markup in a stranger's line."""
    links = [f"{name}: {url}" for name, url in notice.links.items()]
    return "\n".join([notice.title, *(f"- {_inert(line)}" for line in notice.lines), *links])


def markdown(notice: Notice) -> str:
    """Markdown as Mattermost, Discord and Teams read it (CommonMark); a stranger's lines are in a code block.

    At most MARKDOWN_CHARS: what is too much loses its last lines, and its links where they alone are too long.
    """
    links = " · ".join(f"[{name}]({url})" for name, url in notice.links.items())
    shorter = (_markdown(notice, kept, count) for kept in (links, "") for count in range(len(notice.lines), -1, -1))
    return next(text for text in shorter if len(text) <= MARKDOWN_CHARS)


def _markdown(notice: Notice, links: str, count: int) -> str:
    left_out = len(notice.lines) - count
    lines = [*map(_inert, notice.lines[:count]), *([f"and {left_out} more lines"] if left_out else [])]
    why = [fenced("\n".join(lines), "text")] if lines else []
    return "\n\n".join([f"**{notice.title}**", *why, *([links] if links else [])])


def slack(notice: Notice) -> str:
    """Slack's mrkdwn, in which three characters begin markup (https://docs.slack.dev/messaging/formatting-message-text)."""
    links = [f"<{_slack_escaped(url)}|{name}>" for name, url in notice.links.items()]
    why = "\n".join(_slack_escaped(_inert(line)) for line in notice.lines)
    block = [f"```\n{why}\n```"] if why else []
    return "\n".join([f"*{notice.title}*", *block, *([" · ".join(links)] if links else [])])


def page(notice: Notice) -> str:
    """HTML for the body of a mail."""
    links = [f'<a href="{html.escape(url)}">{name}</a>' for name, url in notice.links.items()]
    why = "\n".join(html.escape(_inert(line)) for line in notice.lines)
    parts = [f"<p><b>{html.escape(notice.title)}</b></p>", f"<pre>{why}</pre>" if why else "", " · ".join(links)]
    return "\n".join(part for part in parts if part)


VALUES: Mapping[str, Callable[[Notice], str]] = {
    "event": lambda notice: notice.event,
    "model": lambda notice: notice.model,
    "release": lambda notice: notice.release,
    "title": lambda notice: notice.title,
    "run_url": lambda notice: notice.run_url,
    "report_url": lambda notice: notice.report_url,
    "approval_url": lambda notice: notice.approval_url,
    "text": plain,
    "markdown": markdown,
    "slack": slack,
    "html": page,
}
"""What stands for each placeholder."""


def _inert(line: str) -> str:
    """The line without what any destination takes for a tag, a mention or a link.

    Slack, Mattermost and mail readers make a link of every address with a scheme, and of one that begins with www.
    """
    line = line.translate(INERT).replace("://", ":\u2215\u2215").replace("](", "] (")
    return WWW.sub("\\1\u2024", line)


def _slack_escaped(text: str) -> str:
    return text.replace("&", "&amp;").replace("<", "&lt;").replace(">", "&gt;")
