"""smoke-test: send the candidate questions with known answers through its Service. It records; the gate judges."""

from collections.abc import Iterable, Mapping
from concurrent.futures import ThreadPoolExecutor
from typing import Any

from pydantic import ValidationError

from slipway.tasks.adapters.load.connecting import connect
from slipway.tasks.adapters.store.dataset_store import DatasetStore
from slipway.tasks.adapters.triton.triton import TritonClient
from slipway.tasks.adapters.workspace import Outcome, Workspace
from slipway.tasks.contracts.engine.sampling import SAMPLING_NAMES
from slipway.tasks.contracts.errors import InputError
from slipway.tasks.contracts.measured.measurement import AnswerRow
from slipway.tasks.contracts.spec.gate import Quality
from slipway.tasks.contracts.spec.question import SmokeQuestion
from slipway.tasks.contracts.stored.release import Release
from slipway.tasks.contracts.violations import violation_text
from slipway.tasks.serving.rendered.questions import request_of, timeout_s, with_tokens

QUESTIONS_AT_ONCE = 4
QUESTION_FIELDS = (*sorted(SAMPLING_NAMES), "max_tokens", "match", "min_similarity")
"""What a line of the quality dataset may set besides its texts."""


def run(release: Release, workspace: Workspace) -> Outcome:
    """Send every smoke question and every question of `gate.quality.dataset`; write evidence/<run>/answers.json.

    A wrong answer, or a question that the server rejects, is a row that did not pass.

    Raises:
        UnavailableError: the candidate does not answer.
        InputError: there is no candidate, or the quality dataset has no usable question.
    """
    service = workspace.cluster().candidate_address(release.spec.name)
    questions = [("smoke", question) for question in release.spec.gate.smoke]
    questions += [("quality", question) for question in quality_questions(release, workspace.datasets)]

    def ask(item: tuple[str, SmokeQuestion]) -> AnswerRow:
        suite, question = item[0], with_tokens(item[1], release)
        with connect(service) as client:
            return answered(client, release.spec.name, suite, question)

    with ThreadPoolExecutor(QUESTIONS_AT_ONCE) as pool:
        rows = list(pool.map(ask, questions))
    uri = workspace.evidence(release).write("answers.json", [row.model_dump(mode="json") for row in rows])
    counts = {suite: _count(rows, suite) for suite in ("smoke", "quality")}
    summary = ", ".join(f"{suite} {right} of {total} right" for suite, (right, total) in counts.items() if total)
    return Outcome(summary, {"answers_uri": uri, **{f"{suite}_right": pair[0] for suite, pair in counts.items()}})


def quality_questions(release: Release, datasets: DatasetStore) -> list[SmokeQuestion]:
    """The pinned quality dataset as questions; none when the spec has no quality section.

    Raises:
        InputError: a line lacks `prompt` or `answer` or sets a wrong value, or the dataset is empty.
    """
    quality, pinned = release.spec.gate.quality, release.plan.datasets.quality
    if quality is None or pinned is None:
        return []
    lines = datasets.read(pinned)
    if not lines:
        raise InputError(f"quality dataset {quality.dataset} is empty", remedy="Give a dataset with questions.")
    return [_question(number, line, release) for number, line in enumerate(lines, 1)]


def _question(number: int, line: Mapping[str, Any], release: Release) -> SmokeQuestion:
    """The question of a line, which overrides what the spec sets for every question.

    Raises:
        InputError: it has no prompt or answer, a value is wrong, or the engine kind does not obey a parameter.
    """
    quality = release.spec.gate.quality
    assert quality is not None
    inherited = {name: getattr(quality, name) for name in QUESTION_FIELDS}
    if line.get("match", quality.match) != "fuzzy":
        del inherited["min_similarity"]
    settings = inherited | {name: line[name] for name in QUESTION_FIELDS if name in line}
    arguments = {**quality.chat_template_kwargs, **line.get("chat_template_kwargs", {})}
    texts = {name: line[name] for name in ("prompt", "answer", "history") if name in line}
    try:
        question = SmokeQuestion.model_validate({**settings, **texts, "chat_template_kwargs": arguments})
    except ValidationError as error:
        raise _wrong(number, violation_text(error.errors()[0], SmokeQuestion), quality) from error
    if problem := release.spec.engine.sampling_problem(question):
        raise _wrong(number, problem, quality)
    return question


def _wrong(number: int, problem: str, quality: Quality) -> InputError:
    return InputError(
        f"line {number} of quality dataset {quality.dataset} is wrong",
        found=problem,
        expected='{"prompt": str, "answer": str} on each line; "history" and parameters are optional',
        remedy="Correct the dataset.",
    )


def answered(client: TritonClient, model: str, suite: str, question: SmokeQuestion) -> AnswerRow:
    """Send one question and record its answer."""
    request = request_of(question)
    row = {"suite": suite, "prompt": question.prompt, "lora": question.lora, "expected": question.answer}
    try:
        answer = client.generate(model, request, timeout_s(request))
    except InputError as error:
        return AnswerRow.model_validate({**row, "answer": "", "ok": False, "error": str(error)})
    told = {"answer": answer.text, "finish_reason": answer.finish_reason}
    return AnswerRow.model_validate({**row, **told, "ok": question.accepts(answer.text)})


def _count(rows: Iterable[AnswerRow], suite: str) -> tuple[int, int]:
    matching = [row for row in rows if row.suite == suite]
    return sum(row.ok for row in matching), len(matching)
