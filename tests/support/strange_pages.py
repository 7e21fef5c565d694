"""The pages that Slipway writes, with a stranger's text wherever one can be."""

from datetime import UTC, datetime
from html.parser import HTMLParser

from slipway.cli.ask import comparison_page
from slipway.cli.ask.batch_files import Prompt, Result
from slipway.tasks.contracts.errors import InputError
from slipway.tasks.contracts.measured.evidence import Evidence
from slipway.tasks.contracts.measured.gate import GateReport, Judgement, Verdict
from slipway.tasks.contracts.measured.measurement import AnswerRow, summarize
from slipway.tasks.contracts.spec.gate import Expectation, Goodput
from slipway.tasks.contracts.stored.artifact import Layout
from slipway.tasks.contracts.stored.channel import Channel
from slipway.tasks.contracts.stored.release import StepResult
from slipway.tasks.pages import templates
from slipway.tasks.pages.model import read_model
from slipway.tasks.pages.models import Doing, Link, read_rows, window
from slipway.tasks.pages.report import report_page as report_of
from slipway.tasks.pages.run import read_run
from tests.fakes.documents.page_documents import PageDocuments
from tests.fakes.documents.refused_release import RUN, SUMMARIES, WRONG, documents, gate, refused
from tests.fakes.releases import release
from tests.unit.evidence.test_measurement import row

LAYOUT = Layout("s3://bucket")
NOW = datetime(2026, 1, 2, tzinfo=UTC)
HUB = "https://hub.example"


def report_page(text):
    """The report of a run: a prompt, answers, errors, what a gate says."""
    line = Judgement(
        expectation=Expectation(metric="smoke_accuracy", at_least=1),
        what=text,
        verdict=Verdict.FAILED,
        observed=0.5,
        limit=1,
        unit="",
        count=2,
        why=text,
    )
    released = release(live="demo-old")
    plan = released.plan.model_copy(
        update={
            "run": text,
            "source": released.plan.source.model_copy(update={"revision": text}),
            "stages": {
                name: stage.model_copy(update={"changed": (text,)}) for name, stage in released.plan.stages.items()
            },
        }
    )
    released = released.model_copy(update={"plan": plan})
    report = GateReport(
        release_id=released.id, live=text, verdict=Verdict.FAILED, judgements=(line,), not_applicable=(text,)
    )
    answers = [
        AnswerRow(suite="smoke", prompt=text, expected=text, answer=text, ok=False),
        AnswerRow(suite="smoke", prompt=text, expected=text, answer="", ok=False, error=text),
    ]
    rows = [row(), row(target="live", last=0.9)]
    summaries = [summarize([one], Goodput()) for one in rows]
    return report_of(released, report, Evidence(rows, answers, Goodput()), summaries, quality=[text], hub=HUB)


def comparison(text):
    """The page of `slipway compare`: prompts, answers and failures, names of models."""

    def result(answer):
        return Result(id="1", request="0" * 16, answer=answer, finish_reason=text, first_piece_s=0.1, seconds=0.2)

    prompt = Prompt(prompt=text)
    answers = [(result(f"{text} yes"), result(f"no {text}")), (result(text), InputError(text))]
    pairs = [comparison_page.Pair(prompt, pair) for pair in answers]
    return comparison_page.page(pairs, (text, "demo"), [text])


def models_page(text):
    """The page of all models: reasons in their channels, steps that run, what cannot be read."""
    names = ("one", "two", "three")
    channels = {
        LAYOUT.channel(name): Channel(name=name).refused(f"{name}-0123456789ab", at=NOW, run="run", reason=text)
        for name in names
    }
    return templates.render(
        "models.html.j2",
        rows=read_rows(names, LAYOUT, PageDocuments(channels)),
        doing={name: Doing(now=Link(text, "/dags")) for name in names},
        window=window(names, 1),
        days=30,
        now=NOW,
        hub=HUB,
    )


def refused_documents(text):
    """A refused candidate with the text in its gate, its answers, its steps and the history of its model."""
    line = WRONG.model_copy(update={"what": text, "why": text, "verdict": Verdict.INCONCLUSIVE})
    answers = [
        AnswerRow(suite="smoke", prompt=text, expected=text, answer=text, ok=False),
        AnswerRow(suite="smoke", prompt=text, expected=text, answer="", ok=False, error=text),
    ]
    stored = documents(LAYOUT, channel=refused(LAYOUT, NOW, text), gate=gate(line), answers=answers, summary=SUMMARIES)
    for uri, document in stored.items():
        if isinstance(document, StepResult):
            stored[uri] = document.model_copy(update={"summary": text})
    return PageDocuments(stored)


def model_page(text):
    """The page of a model."""
    model = read_model("demo", LAYOUT, refused_documents(text))
    return templates.render("model.html.j2", model=model, doing=Doing(now=Link(text, "/")), index="../", hub=HUB)


def run_page(text):
    """The page of a run."""
    return templates.render("run.html.j2", run=read_run("demo", RUN, LAYOUT, refused_documents(text)), hub=HUB)


PAGES = (report_page, comparison, models_page, model_page, run_page)


class Structure(HTMLParser):
    """Elements and attributes of a page, and its texts."""

    def __init__(self, page):
        super().__init__()
        self.elements, self.text = [], ""
        self.feed(page)

    def handle_starttag(self, tag, attrs):
        if tag != "mark":  # a word that the other answer lacks
            self.elements.append((tag, tuple(attrs)))

    def handle_data(self, data):
        self.text += data
