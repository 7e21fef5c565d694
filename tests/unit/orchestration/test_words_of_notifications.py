"""What notifications say. Texts of strangers stay texts, wherever they are read: no markup, no link, no mention."""

import re
from html.parser import HTMLParser

import pytest
from markdown_it import MarkdownIt

from slipway.airflow.notify.notice import Notice, filled_in, markdown, page, plain, slack
from tests.support.strange_texts import texts

RUN = "https://airflow.example/dags/release__demo/runs/manual__1"
REPORT = "https://console.example/slipway/evidence/report.html?a=1&b=2"
NOTICE = Notice(
    event="refused",
    model="demo",
    at="2026-01-01T00:00:00+00:00",
    dag_id="release__demo",
    run_id="manual__1",
    release="demo-1",
    why=("failed: smoke_accuracy is 0.5, at least 1 (n=2)", "passed: error_rate is 0"),
    run_url=RUN,
    report_url=REPORT,
)
MENTIONS = [
    "<!channel> <!here|x> <@U024BE7LH> <#C024BE7LR|general> &lt;!channel&gt;",
    "@everyone @here @channel <at>everyone</at>",
    "<http://stranger.example|Report> [Report](http://stranger.example) http://stranger.example",
    "www.stranger.example/x (WWW.stranger.example) _www.stranger.example_",
    "```\n@everyone http://stranger.example\n```",
    "{html} {run_url} {{ conn.slack.password }} {% raw %}",
]
STRANGE = [*texts("alert(1)", "http://stranger.example/x"), *MENTIONS]


def of_stranger(text):
    return Notice(**{**vars(NOTICE), "why": (text,)})


def test_the_message_says_first_what_failed_and_where_to_look():
    assert plain(NOTICE).splitlines() == [
        "demo: demo-1 was refused",
        "- failed: smoke_accuracy is 0.5, at least 1 (n=2)",
        "- passed: error_rate is 0",
        f"Report: {REPORT}",
        f"Run: {RUN}",
    ]


@pytest.mark.parametrize(
    ("event", "title"),
    [
        ("promoted", "demo: demo-1 is live"),
        ("refused", "demo: demo-1 was refused"),
        ("rolled-back", "demo: rolled back, demo-1 is live again"),
        ("waiting-for-approval", "demo: demo-1 waits for approval"),
        ("drill-failed", "demo: the drill of its rollback failed"),
    ],
)
def test_the_title_names_the_model_and_what_happened(event, title):
    assert Notice(**{**vars(NOTICE), "event": event}).title == title


@pytest.mark.parametrize("text", STRANGE)
def test_in_slack_only_our_own_links_are_markup(text):
    """Slack reads markup between < and >, and takes &, < and > as text only when they are escaped."""
    message = slack(of_stranger(text))
    escaped = REPORT.replace("&", "&amp;")

    assert re.findall(r"<[^>]*>", message) == [f"<{escaped}|Report>", f"<{RUN}|Run>"]
    assert message.count("```") == 2
    assert "@" not in message
    assert re.sub(r"&(amp|lt|gt);", "", message).count("&") == 0


@pytest.mark.parametrize("text", STRANGE)
def test_in_markdown_a_strangers_text_stays_in_its_block(text):
    tokens = MarkdownIt("commonmark").parse(markdown(of_stranger(text)))
    inline = [child for token in tokens for child in token.children or []]

    assert [token.type for token in tokens if token.type not in {"paragraph_open", "inline", "paragraph_close"}] == [
        "fence"
    ]
    assert [child.attrs["href"] for child in inline if child.type == "link_open"] == [REPORT, RUN]
    (block,) = (token.content for token in tokens if token.type == "fence")
    assert "@" not in block
    assert "://" not in block


class Tags(HTMLParser):
    """The elements of a page, with their attributes."""

    def __init__(self, text):
        super().__init__()
        self.found = []
        self.feed(text)

    def handle_starttag(self, tag, attrs):
        self.found.append((tag, *attrs))


@pytest.mark.parametrize("text", STRANGE)
def test_in_a_mail_a_strangers_text_adds_no_element(text):
    message = page(of_stranger(text))

    assert Tags(message).found == [("p",), ("b",), ("pre",), ("a", ("href", REPORT)), ("a", ("href", RUN))]
    assert message.count("://") == 2


@pytest.mark.parametrize("text", STRANGE)
def test_plain_text_is_harmless_also_where_markup_is_read(text):
    lines = plain(of_stranger(text)).splitlines()

    assert len(lines) == 4
    assert not set("<>@`") & set(lines[1])
    assert "://" not in lines[1]
    assert "www." not in lines[1].lower()
    assert "](" not in lines[1]


def test_placeholders_are_filled_in_once():
    text = filled_in("{model}: {text}", of_stranger("{html} {model}"))

    assert text.splitlines()[:2] == ["demo: demo: demo-1 was refused", "- {html} {model}"]


def test_lines_are_bounded_and_hold_no_token():
    notice = Notice(**{**vars(NOTICE), "why": ("x" * 10_000, "hf_abcdefghijklmnop", *["line"] * 100)})

    assert len(notice.lines) == 31
    assert max(map(len, notice.lines)) <= 500
    assert "hf_" not in notice.lines[1]
    assert notice.lines[-1] == "and 72 more lines"
