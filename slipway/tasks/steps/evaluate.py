"""evaluate: run tasks of lm-evaluation-harness on the candidate. It records; the gate judges."""

import logging
from dataclasses import dataclass
from pathlib import Path
from typing import Literal

from slipway.tasks.adapters.judge.lm_eval_harness import HarnessEndpoint, HarnessRequest, HarnessRunner, LmEval
from slipway.tasks.adapters.kube.service_object import ServiceAddress
from slipway.tasks.adapters.store.object_store import NotFoundError
from slipway.tasks.adapters.workspace import Outcome, Workspace
from slipway.tasks.contracts.base import canonical_json, read_contract, sha256_of
from slipway.tasks.contracts.errors import InputError
from slipway.tasks.contracts.measured.harness import HarnessReport, HarnessScores
from slipway.tasks.contracts.spec.harness import Harness, HarnessTask
from slipway.tasks.contracts.spec_fields import PLAIN_ANSWER_TOKENS
from slipway.tasks.contracts.stored.release import Release, StepResult

log = logging.getLogger(__name__)

Target = Literal["candidate", "live"]


def run(release: Release, workspace: Workspace) -> Outcome:
    """Run every task of gate.harness on the candidate; write evidence/harness.json and a log of each task's samples.

    A task that is compared with the live release is run on that too, unless the live release's own run recorded its
    score with the same lm_eval, image, documents and settings.

    Raises:
        InputError: there is no candidate, or a task cannot be run.
        UnavailableError: the candidate, the live release or a dataset does not answer.
    """
    harness = _harness(release)
    hub = workspace.site.hub.endpoint if harness.reads_hub else None
    return evaluate(release, workspace, LmEval(workspace.folder("harness"), workspace.clock, hub=hub))


def evaluate(release: Release, workspace: Workspace, runner: HarnessRunner) -> Outcome:
    """As `run`, with the harness that is given."""
    harness, cluster = _harness(release), workspace.cluster()
    evaluation = Evaluation(release, workspace, runner)
    candidate = cluster.candidate_address(release.spec.name)
    recorded = evaluation.recorded_of_live()
    scores: list[HarnessScores] = []
    for task in harness.tasks:
        scores.append(evaluation.measure(task, "candidate", release.id, candidate))
        if release.plan.live is None or task.max_drop_of_live is None:
            continue
        known = recorded.of(task.task, "candidate") if recorded else None
        if known is not None and known.key == scores[-1].key:
            log.info("%s: %s has a score of run %s, which is used", task.task, known.release_id, known.run)
            scores.append(known.model_copy(update={"target": "live"}))
        elif live := cluster.live_address(release.spec.name):
            scores.append(evaluation.measure(task, "live", release.plan.live, live))
    report = HarnessReport(lm_eval=runner.version, image=evaluation.image, scores=tuple(scores))
    document = report.model_dump(mode="json")
    uri = workspace.evidence(release).write("harness.json", document)
    return Outcome(_summary(harness, report), {"harness_uri": uri, "harness": document})


@dataclass(frozen=True)
class Evaluation:
    """Measures tasks of one release."""

    release: Release
    workspace: Workspace
    runner: HarnessRunner

    @property
    def image(self) -> str:
        """The image of this step."""
        return self.workspace.site.images.harness or ""

    def measure(self, task: HarnessTask, target: Target, release_id: str, address: ServiceAddress) -> HarnessScores:
        """Run one task on one release, and store the log of its samples."""
        harness, name = _harness(self.release), self.release.spec.name
        host = f"[{address.host}]" if ":" in address.host else address.host
        base = f"http://{host}:{address.ports['http']}/v1"
        endpoint = HarnessEndpoint(base, name, harness.api, harness.concurrency, address.api_key)
        with_questions = task.questions is not None
        request = HarnessRequest(
            task.task,
            self._questions(task, target) if with_questions else None,
            self.release.plan.datasets.harness_commits.get(task.task),
            task.samples,
            None if with_questions else task.num_fewshot,
            task.max_tokens or (PLAIN_ANSWER_TOKENS if with_questions else None),
        )
        measured = self.runner.run(request, endpoint)
        self.workspace.evidence(self.release).write_bytes(
            f"harness-{target}-{task.task}.jsonl", measured.log, content_type="application/jsonl"
        )
        return HarnessScores(
            task=task.task,
            target=target,
            release_id=release_id,
            run=self.release.plan.run,
            key=self.key(task),
            samples=measured.samples,
            scores=measured.scores,
            task_version=measured.task_version,
            task_hash=measured.task_hash,
        )

    def key(self, task: HarnessTask) -> str:
        """Digest of what a score depends on besides the release; its limits and its concurrency are no part of it."""
        datasets, harness = self.release.plan.datasets, _harness(self.release)
        questions = datasets.harness_questions.get(task.task)
        return sha256_of(
            {
                "lm_eval": self.runner.version,
                "image": self.image,
                "api": harness.api,
                "task": task.model_dump(mode="json", include={"task", "samples", "num_fewshot", "max_tokens"}),
                "questions": questions.file.digest if questions else None,
                "commit": datasets.harness_commits.get(task.task),
            }
        )

    def recorded_of_live(self) -> HarnessReport | None:
        """What the live release's own run recorded; None without a usable record."""
        live, name = self.release.plan.live, self.release.spec.name
        if live is None:
            return None
        uri = self.workspace.layout.result(name, live, "evaluate")
        try:
            result = StepResult.model_validate_json(self.workspace.store.read_bytes(uri))
            return read_contract(HarnessReport, result.data["harness"], uri)
        except (NotFoundError, KeyError):
            return None
        except (InputError, ValueError) as error:
            log.warning("the live release is measured again, because its record cannot be read: %s", error)
            return None

    def _questions(self, task: HarnessTask, target: Target) -> Path:
        """The questions as a file, of lines that plan stored.

        Raises:
            InputError: a line lacks `prompt` or `answer`, or there is none.
        """
        lines = self.workspace.datasets.read(self.release.plan.datasets.harness_questions[task.task])
        if not lines or not all(isinstance(line.get(part), str) for line in lines for part in ("prompt", "answer")):
            raise InputError(
                f"questions {task.questions} of gate.harness have a line without prompt or answer, or no line",
                expected='{"prompt": str, "answer": str} on each line',
                remedy="Correct the dataset.",
            )
        file = self.workspace.folder(f"questions-{target}-{task.task}") / "questions.jsonl"
        rows = ({part: line[part] for part in ("prompt", "answer")} for line in lines)
        file.write_bytes(b"".join(canonical_json(row) + b"\n" for row in rows))
        return file


def _harness(release: Release) -> Harness:
    if release.spec.gate.harness is None:
        raise InputError(
            f"{release.spec.name} has no gate.harness, so there is nothing to evaluate", remedy="Leave this step out."
        )
    return release.spec.gate.harness


def _summary(harness: Harness, report: HarnessReport) -> str:
    wanted = {task.task: task.limits[0] for task in harness.tasks}
    parts = []
    for each in (each for each in report.scores if each.target == "candidate"):
        limit = wanted[each.task]
        score = each.scores.get(limit.score)
        parts.append(f"{each.task} {limit.metric} {score.value:.4g}" if score else f"{each.task}: no {limit.score}")
    return ", ".join(parts)
