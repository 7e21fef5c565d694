"""gate: judge what smoke-test and benchmark recorded. A refusal is a result, not an error."""

import dataclasses
import json
import logging
import math
from collections.abc import Mapping, Sequence
from typing import Any

from slipway.tasks.adapters.judge import expectations
from slipway.tasks.adapters.judge.comparison import Comparison, compare, of_texts
from slipway.tasks.adapters.store.evidence_folder import EvidenceFolder
from slipway.tasks.adapters.workspace import Outcome, Workspace
from slipway.tasks.contracts.errors import InputError
from slipway.tasks.contracts.fit.ledger import Ledger, ledger
from slipway.tasks.contracts.fit.resolution import ResolvedRelease
from slipway.tasks.contracts.measured.evidence import Evidence, Line, TextLosses, lines
from slipway.tasks.contracts.measured.gate import GateReport, Interval, Judgement, Verdict, interval_words, worst
from slipway.tasks.contracts.measured.harness import HarnessLine, HarnessReport, harness_lines, unjudged
from slipway.tasks.contracts.measured.measurement import AnswerRow, LevelSummary, unpacked
from slipway.tasks.contracts.spec.gate import OF_TEXTS, Benchmark, Expectation
from slipway.tasks.contracts.spec.harness import HarnessLimit
from slipway.tasks.contracts.spec.load_level import LoadLevel
from slipway.tasks.contracts.step_names import STEPS
from slipway.tasks.contracts.stored.release import Release
from slipway.tasks.pages.reading import RESULT, StoreReader
from slipway.tasks.pages.report import report_page
from slipway.tasks.pages.timeline import Point, read_points

log = logging.getLogger(__name__)

DIVERGENCE = Expectation(metric="kl_divergence", at_most=0)


def run(release: Release, workspace: Workspace) -> Outcome:
    """Judge every expectation of the spec; write gate.json, cost.json, the suites' documents and report.html.

    Missing data makes a line inconclusive; it never raises.
    """
    folder = workspace.evidence(release)
    summaries = _summaries(folder)
    quantized = workspace.artifacts.find("quantize", release.plan.stages["quantize"].key)
    costs = _costs(release, workspace, summaries)
    folder.write("cost.json", costs.model_dump(mode="json"))
    evidence = _evidence(release, folder, quantized.metrics if quantized else {}, summaries, costs)
    verdict, documents = judge(release, evidence)
    folder.write("expectations.json", documents)
    document = verdict.model_dump(mode="json")
    folder.write("gate.json", document)
    past = _past(release, workspace)
    page = report_page(
        release,
        verdict,
        evidence,
        summaries,
        past=past,
        quality=_quality(evidence),
        costs=costs,
        hub=workspace.site.hub.endpoint,
    )
    folder.write_bytes("report.html", page.encode(), content_type="text/html; charset=utf-8")
    refused = [judgement.why for judgement in verdict.judgements if judgement.verdict is not Verdict.PASSED]
    passed = len(verdict.judgements) - len(refused)
    summary = f"{verdict.verdict}: {passed} of {len(verdict.judgements)} expectations hold"
    data = {"verdict": verdict.verdict.value, "refused": refused, "evidence": folder.uri, "report": document}
    return Outcome("; ".join([summary, *refused]), data)


def _costs(release: Release, workspace: Workspace, summaries: Sequence[LevelSummary]) -> Ledger:
    """What the run has cost, and what the candidate's tokens cost under the measured load."""
    layout, spec = workspace.layout, release.spec
    uris = [layout.result(spec.name, release.id, step) for step in STEPS]
    stored = StoreReader(workspace.store).read(dict.fromkeys(uris, RESULT)).values()
    results = [each.value for each in stored if each.value and each.value.run == release.plan.run]
    live = _live(release, workspace)
    tokens = {each.level: each.output_tokens_per_s for each in summaries if each.target == "candidate"}
    resolved = ResolvedRelease(spec, workspace.site)
    return ledger(resolved, release.plan.estimate, results, tokens, live=live.spec if live else None)


def _live(release: Release, workspace: Workspace) -> Release | None:
    """The live release; None where there is none, or its document is lost: a cost is no reason to judge nothing."""
    documents = workspace.documents
    try:
        live = documents.channel(release.spec.name).live
        return documents.release(live.release_uri) if live else None
    except InputError as error:
        log.warning("the candidate's pods are counted without what live gives up: %s", error)
        return None


def _token_costs(summaries: Sequence[LevelSummary], costs: Ledger) -> dict[LoadLevel, float]:
    """What a million tokens of the candidate cost at each level, where that is known."""
    known = {each.level: each.cost_per_million_tokens for each in costs.levels}
    levels = {each.level for each in summaries}
    return {level: cost for level in levels if (cost := known.get(str(level))) is not None}


def _evidence(
    release: Release,
    folder: EvidenceFolder,
    metrics: Mapping[str, Any],
    summaries: Sequence[LevelSummary],
    costs: Ledger,
) -> Evidence:
    """What this run recorded, and quantize measured; a missing document counts as no rows."""
    harness = folder.read("harness.json")
    return Evidence(
        requests=unpacked(folder.read("requests.jsonl.gz") or folder.read("requests.jsonl")),
        answers=[AnswerRow.model_validate(row) for row in json.loads(folder.read("answers.json") or b"[]")],
        goodput=release.spec.gate.benchmark.goodput,
        perplexity=metrics.get("perplexity"),
        source_perplexity=metrics.get("source_perplexity"),
        texts=[TextLosses(*row) for row in metrics.get("perplexity_texts", ())],
        harness=HarnessReport.model_validate_json(harness) if harness else None,
        client_busy=_most(summaries, "client_busy"),
        client_chunks=_most(summaries, "client_chunks"),
        token_costs=_token_costs(summaries, costs),
        currency=costs.currency or "",
    )


def _past(release: Release, workspace: Workspace) -> tuple[Point, ...]:
    """Earlier candidates of the model, as their runs measured them."""
    try:
        channel = workspace.documents.channel(release.spec.name)
        return read_points(channel, workspace.layout, StoreReader(workspace.store))
    except InputError as error:
        log.warning("the report is without earlier releases: %s", error)
        return ()


def _quality(evidence: Evidence) -> list[str]:
    """What quantize measured of the model itself, as sentences."""
    perplexity, source, lines = evidence.perplexity, evidence.source_perplexity, []
    if perplexity is not None and source is not None:
        lines.append(f"Perplexity {perplexity:.4g}, unquantized source {source:.4g}.")
    if evidence.texts:
        found = of_texts(DIVERGENCE, evidence.texts)
        interval = f"[{found.low:.3g}, {found.high:.3g}]"
        lines.append(
            f"Divergence from the source {found.point:.3g} nats a token {interval}, over {found.requests} texts."
        )
    return lines


def _most(summaries: Sequence[LevelSummary], share: str) -> dict[LoadLevel, float]:
    """The larger share of a level's targets, where it is known."""
    known = [(summary.level, getattr(summary, share)) for summary in summaries if getattr(summary, share) is not None]
    return {level: max(value for each, value in known if each == level) for level, _ in known}


def _summaries(folder: EvidenceFolder) -> list[LevelSummary]:
    return [LevelSummary.model_validate(row) for row in json.loads(folder.read("summary.json") or b"[]")]


def judge(release: Release, evidence: Evidence) -> tuple[GateReport, list[dict[str, object]]]:
    """Judge the evidence; return the report and the documents of Great Expectations behind it."""
    gate = release.spec.gate
    applicable = [line for line in gate.expect if line.of != "live" or release.plan.live]
    judged: list[Judgement] = []
    documents: list[dict[str, object]] = []
    for line in lines(applicable, gate.benchmark.levels, evidence):
        if line.problem is not None:
            judged.append(_inconclusive(line, line.problem))
            continue
        by_interval = line.expectation.of is not None or line.expectation.metric == "kl_divergence"
        judgement, document = _compared(line, evidence, gate.benchmark) if by_interval else _absolute(line)
        judged.append(_distrusted(line, judgement))
        documents.append({"what": line.what, **document})
    for scored in harness_lines(gate.harness, evidence.harness, live=bool(release.plan.live)) if gate.harness else ():
        judgement, document = _scored(scored)
        judged.append(judgement)
        documents += [{"what": scored.what, **document}] if document else []
    gate_report = GateReport(
        release_id=release.id,
        live=release.plan.live,
        verdict=worst(judgement.verdict for judgement in judged),
        judgements=tuple(judged),
        not_applicable=_not_applicable(release, [line.metric for line in gate.expect if line not in applicable]),
    )
    return gate_report, documents


def _not_applicable(release: Release, metrics: Sequence[str]) -> tuple[str, ...]:
    harness = release.spec.gate.harness
    tasks = unjudged(harness) if harness is not None and not release.plan.live else ()
    return tuple(f"{name} against live: no release is live" for name in (*metrics, *tasks))


def _inconclusive(line: Line, problem: str) -> Judgement:
    return _judgement(line, Verdict.INCONCLUSIVE, None, f"{line.what}: {problem}")


def _distrusted(line: Line, judgement: Judgement) -> Judgement:
    """The judgement, or inconclusive if the load generator was the limit.

    A limit that was met in spite of it is met. Errors are the server's in any case.
    """
    absolute = line.expectation.of is None
    if not line.clients_limit or line.expectation.metric == "error_rate":
        return judgement
    if absolute and judgement.verdict is Verdict.PASSED:
        return judgement
    why = f"{judgement.why}; {line.clients_limit}"
    return judgement.model_copy(update={"verdict": Verdict.INCONCLUSIVE, "why": why})


def _absolute(line: Line) -> tuple[Judgement, dict[str, object]]:
    expectation = line.expectation
    checked = _validated(
        line.what, line.samples, expectation.limit, upper=expectation.is_upper, quantile=expectation.quantile
    )
    verdict = Verdict.PASSED if checked.success else Verdict.FAILED
    why = f"{line.what} is {checked.observed:.4g} {line.unit}".rstrip() + f", {_limit_text(line)} (n={line.count})"
    return _judgement(line, verdict, checked.observed, why), checked.document


def _compared(line: Line, evidence: Evidence, settings: Benchmark) -> tuple[Judgement, dict[str, object]]:
    """Judge a number by its confidence interval: it passes or fails only if the whole interval does."""
    expectation = line.expectation
    if expectation.metric in OF_TEXTS and evidence.texts:
        compared: Comparison | None = of_texts(expectation, evidence.texts)
    elif line.level is None:
        point = line.samples[0] / line.baseline[0]
        compared = Comparison(point, point, point, line.count)
    else:
        compared = compare(expectation, line.level, evidence, settings)
    if compared is None:
        return _inconclusive(line, f"no ratio exists: no request finished, or {expectation.of} is 0"), {}
    point, low, high = compared.point, compared.low, compared.high
    if not math.isfinite(point) or not math.isfinite(high if expectation.is_upper else low):
        return _inconclusive(line, "too few samples for an interval"), {}
    verdict, document = _by_interval(line.what, (low, high), expectation)
    interval = (low if math.isfinite(low) else None, high if math.isfinite(high) else None)
    number = f"{point:.3g} {line.unit}".rstrip()
    ratio_text = f"{line.what} is {number} {interval_words(interval)}".rstrip()
    looked_at = dataclasses.replace(line, count=min(line.count, compared.requests))
    why = f"{ratio_text}, {_limit_text(line)} (n={looked_at.count})"
    return _judgement(looked_at, verdict, point, why, interval), document


def _by_interval(
    what: str, interval: tuple[float, float], expectation: Expectation | HarnessLimit
) -> tuple[Verdict, dict[str, object]]:
    """Passed or failed if the whole interval is; inconclusive if it holds the limit."""
    near, far = reversed(interval) if expectation.is_upper else interval
    limit, upper = expectation.limit, expectation.is_upper
    checked = _validated(what, (near,), limit, upper=upper)
    beyond = math.isfinite(far) and not _validated(what, (far,), limit, upper=upper).success
    verdict = Verdict.PASSED if checked.success else Verdict.FAILED if beyond else Verdict.INCONCLUSIVE
    return verdict, checked.document


def _scored(line: HarnessLine) -> tuple[Judgement, dict[str, object]]:
    """Judge a score of the harness by its confidence interval."""
    limit = line.limit
    document: dict[str, object] = {}
    if line.problem is not None or line.observed is None or line.low is None or line.high is None:
        verdict, interval = Verdict.INCONCLUSIVE, None
        why = f"{line.what}: {line.problem}"
    else:
        interval = (line.low, line.high)
        verdict, document = _by_interval(line.what, interval, limit)
        bound = "at most" if limit.is_upper else "at least"
        observed = f"{line.what} is {line.observed:.4g} {interval_words(interval)}".rstrip()
        why = f"{observed}, {bound} {limit.limit:g} (n={line.count})"
    judgement = Judgement(
        expectation=limit,
        what=line.what,
        verdict=verdict,
        observed=line.observed,
        limit=limit.limit,
        unit="",
        count=line.count,
        interval=interval,
        why=why,
    )
    return judgement, document


def _validated(
    name: str, samples: Sequence[float], limit: float, *, upper: bool, quantile: float | None = None
) -> expectations.Checked:
    at_least, at_most = (None, limit) if upper else (limit, None)
    return expectations.validate([expectations.Check(name, samples, at_least, at_most, quantile)])[0]


def _limit_text(line: Line) -> str:
    unit = "" if line.expectation.of else f" {line.unit}"
    return f"{'at most' if line.expectation.is_upper else 'at least'} {line.expectation.limit:g}{unit}".rstrip()


def _judgement(
    line: Line, verdict: Verdict, observed: float | None, why: str, interval: Interval | None = None
) -> Judgement:
    return Judgement(
        expectation=line.expectation,
        what=line.what,
        verdict=verdict,
        observed=observed,
        limit=line.expectation.limit,
        unit=line.unit,
        count=line.count,
        interval=interval,
        why=why,
    )
