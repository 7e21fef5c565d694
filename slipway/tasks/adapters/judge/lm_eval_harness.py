"""EleutherAI's lm-evaluation-harness against an OpenAI endpoint: the only access to lm_eval.

Its own clients of OpenAI's API send the requests (local-chat-completions, local-completions). They send without a
tokenizer, so only tasks that generate text can run; a request that fails after three attempts ends the task, and is
never counted as a wrong answer.
"""

import asyncio
import importlib.metadata
import json
import logging
import math
import os
import threading
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field
from http import HTTPStatus
from pathlib import Path
from typing import Any, Protocol

from slipway.tasks.adapters.clock import Clock
from slipway.tasks.adapters.progress import duration
from slipway.tasks.contracts.base import sha256_of
from slipway.tasks.contracts.errors import InputError, UnavailableError
from slipway.tasks.contracts.measured.harness import Score
from slipway.tasks.contracts.spec.harness import OWN_FILTER

log = logging.getLogger(__name__)

REQUEST_TIMEOUT_S = 600
ATTEMPTS = 3
HEARTBEAT_S = 10.0
RESAMPLES = 1000
"""lm_eval resamples this often to estimate the standard error of some metrics; that of a mean is exact."""
CLIENTS = {"chat": ("local-chat-completions", "chat/completions"), "completions": ("local-completions", "completions")}
END_OF_THOUGHT = "</think>"
MESSAGE_CHARS = 300
FAILURES_LOGGED = 10
HASHES = ("doc_hash", "prompt_hash", "target_hash")


@dataclass(frozen=True)
class HarnessEndpoint:
    """An OpenAI endpoint: `base` ends with /v1."""

    base: str
    model: str
    api: str
    concurrency: int
    api_key: str = field(default="", repr=False)


@dataclass(frozen=True)
class HarnessRequest:
    """One task to run.

    Attributes:
        task: name of one of lm_eval's tasks, or of the task that `questions` make.
        questions: JSONL with `prompt` and `answer` on each line; None for one of lm_eval's tasks.
        commit: commit of the dataset that lm_eval's task reads.
        samples: documents that are asked; None for all.
        num_fewshot: examples before each question; None for the task's own number.
        max_tokens: tokens of an answer; None for the task's own limit.
    """

    task: str
    questions: Path | None = None
    commit: str | None = None
    samples: int | None = None
    num_fewshot: int | None = None
    max_tokens: int | None = None


@dataclass(frozen=True)
class HarnessMeasurement:
    """What lm_eval measured in one task. `log` has a line of JSON for each document: prompt, answer and metrics."""

    samples: int
    scores: dict[str, Score]
    task_version: str
    task_hash: str
    log: bytes = field(repr=False)


class HarnessRunner(Protocol):
    """Runs tasks; LmEval, or a stand-in for it."""

    version: str

    def run(self, request: HarnessRequest, endpoint: HarnessEndpoint) -> HarnessMeasurement:
        """Run one task.

        Raises:
            InputError: there is no such task, or the endpoint refuses its requests.
            UnavailableError: the endpoint does not answer, or the dataset cannot be read.
        """


class LmEval:
    """The installed lm_eval. One per process: it sets variables that its packages read when they are imported."""

    def __init__(self, home: Path, clock: Clock, *, hub: str | None) -> None:
        """`home` receives caches. `hub` is where datasets are read; None: nothing but the endpoint is contacted."""
        offline = {"HF_HUB_OFFLINE": "1", "HF_DATASETS_OFFLINE": "1"} if hub is None else {"HF_ENDPOINT": hub}
        os.environ |= {
            "HF_HOME": str(home),
            "HF_HUB_DISABLE_TELEMETRY": "1",
            "HF_HUB_DISABLE_IMPLICIT_TOKEN": "1",
            "HF_DATASETS_TRUST_REMOTE_CODE": "0",
            "NO_PROXY": "*",
            **offline,
        }
        os.environ.pop("HF_ALLOW_CODE_EVAL", None)
        self.version, self._clock = importlib.metadata.version("lm_eval"), clock

    def run(self, request: HarnessRequest, endpoint: HarnessEndpoint) -> HarnessMeasurement:
        """As HarnessRunner."""
        from lm_eval.evaluator import simple_evaluate
        from lm_eval.tasks import TaskManager

        manager = TaskManager(include_defaults=request.questions is None)
        config = question_task(request) if request.questions else self._own_task(request, manager)
        answers = _Answers(request.task, self._clock)
        with answers, _few_failures():
            try:
                results = simple_evaluate(
                    model=_client(endpoint, answers),
                    tasks=[config],
                    task_manager=manager,
                    num_fewshot=request.num_fewshot,
                    limit=request.samples,
                    bootstrap_iters=RESAMPLES,
                    apply_chat_template=endpoint.api == "chat",
                    gen_kwargs={"max_gen_toks": request.max_tokens} if request.max_tokens else None,
                    confirm_run_unsafe_code=False,
                )
            except Exception as error:
                raise _translated(request.task, endpoint, error) from error
        return measurement(request.task, results)

    def _own_task(self, request: HarnessRequest, manager: Any) -> dict[str, Any]:
        """The name of one of lm_eval's tasks, with the commit of its dataset.

        Raises:
            InputError: lm_eval has no such task, or it is one that Slipway does not run.
        """
        from lm_eval.tasks._yaml_loader import load_yaml

        entry = manager.task_index.get(request.task)
        if entry is None or entry.yaml_path is None:
            raise InputError(f"lm_eval {self.version} has no task {request.task}", remedy="Correct its name.")
        config = load_yaml(entry.yaml_path, resolve_func=False)
        if config.get("unsafe_code") or config.get("output_type", "generate_until") != "generate_until":
            raise InputError(
                f"task {request.task} of lm_eval {self.version} runs code or needs log probabilities",
                expected="a task that generates text",
                remedy="Remove it from gate.harness; the image may have another lm_eval than the plan's table.",
            )
        arguments = {**(config.get("dataset_kwargs") or {}), **({"revision": request.commit} if request.commit else {})}
        return {"task": request.task, "dataset_kwargs": arguments}


def question_task(request: HarnessRequest) -> dict[str, Any]:
    """lm_eval's configuration of a task that asks the questions of a file and expects their answers exactly."""
    return {
        "task": request.task,
        "dataset_path": "json",
        "dataset_kwargs": {"data_files": {"test": str(request.questions)}},
        "test_split": "test",
        "output_type": "generate_until",
        "doc_to_text": "{{prompt}}",
        "doc_to_target": "{{answer}}",
        "num_fewshot": 0,
        "generation_kwargs": {"until": [], "do_sample": False, "temperature": 0, "max_gen_toks": request.max_tokens},
        "filter_list": [
            {
                "name": OWN_FILTER,
                "filter": [
                    {"function": "regex", "regex_pattern": r"(?s)^\s*(.*?)\s*$", "fallback": ""},
                    {"function": "take_first"},
                ],
            }
        ],
        "metric_list": [{"metric": "exact_match", "aggregation": "mean", "higher_is_better": True}],
        "metadata": {"version": 1.0},
    }


def measurement(task: str, results: Mapping[str, Any]) -> HarnessMeasurement:
    """Read lm_eval's results of one task."""
    row, samples = results["results"][task], results["samples"][task]
    scores = {}
    for name, value in row.items():
        metric, comma, filtered = name.partition(",")
        if not comma or metric.endswith("_stderr") or not isinstance(value, int | float) or not math.isfinite(value):
            continue
        error = row.get(f"{metric}_stderr,{filtered}")
        has_error = isinstance(error, int | float) and math.isfinite(error)
        scores[name] = Score(value=float(value), stderr=float(error) if has_error else None)
    documents = {sample["doc_id"] for sample in samples}
    lines = [json.dumps(sample, default=str, sort_keys=True) for sample in samples]
    return HarnessMeasurement(
        samples=len(documents),
        scores=scores,
        task_version=str(results.get("versions", {}).get(task, "")),
        task_hash=sha256_of(sorted([sample[name] for name in HASHES] for sample in samples)),
        log="".join(f"{line}\n" for line in lines).encode(),
    )


class _Answers:
    """Counts answers as they arrive and logs the count, so that a stalled task is visible."""

    def __init__(self, task: str, clock: Clock) -> None:
        self._task, self._clock, self._began = task, clock, clock.monotonic()
        self._count, self._ended = 0, threading.Event()
        self._reporter = threading.Thread(target=self._report, name="harness", daemon=True)

    def __enter__(self) -> None:
        self._reporter.start()

    def __exit__(self, *_: object) -> None:
        self._ended.set()
        self._reporter.join()
        log.info(self._line())

    def add(self, answers: int) -> None:
        """Count answers; lm_eval calls its clients in one thread at a time."""
        self._count += answers

    def _line(self) -> str:
        return f"{self._task}: {self._count} answers in {duration(self._clock.monotonic() - self._began)}"

    def _report(self) -> None:
        while not self._ended.wait(HEARTBEAT_S):
            log.info(self._line())


@contextmanager
def _few_failures() -> Iterator[None]:
    """Log the first failures of requests only: lm_eval writes several lines for each request."""
    logged = 0

    def is_among_first(record: logging.LogRecord) -> bool:
        nonlocal logged
        logged += record.levelno >= logging.WARNING
        return logged <= FAILURES_LOGGED

    loggers = [logging.getLogger(name) for name in ("lm_eval.models.api_models", "asyncio")]
    for logger in loggers:
        logger.addFilter(is_among_first)
    try:
        yield
    finally:
        for logger in loggers:
            logger.removeFilter(is_among_first)


def _client(endpoint: HarnessEndpoint, answers: _Answers) -> Any:
    """lm_eval's client of the endpoint, which also counts answers."""
    from lm_eval.api.registry import get_model

    kind, route = CLIENTS[endpoint.api]
    base: Any = get_model(kind)

    class CountingClient(base):  # type: ignore[misc]
        def parse_generations(self, outputs: Any, **options: Any) -> Any:
            texts = super().parse_generations(outputs=outputs, **options)
            answers.add(len(texts))
            return texts

    arguments: dict[str, Any] = {"think_end_token": END_OF_THOUGHT} if endpoint.api == "chat" else {}
    if endpoint.api_key:
        arguments["header"] = {"Authorization": f"Bearer {endpoint.api_key}"}
    return CountingClient(
        model=endpoint.model,
        base_url=f"{endpoint.base}/{route}",
        tokenizer_backend="none",
        tokenized_requests=False,
        num_concurrent=endpoint.concurrency,
        max_retries=ATTEMPTS,
        timeout=REQUEST_TIMEOUT_S,
        trust_remote_code=False,
        **arguments,
    )


def _translated(task: str, endpoint: HarnessEndpoint, error: Exception) -> Exception:
    status = getattr(error, "status", None) or getattr(getattr(error, "response", None), "status_code", None)
    message = f"{type(error).__name__}: {' '.join(str(error).split())[:MESSAGE_CHARS]}"
    if isinstance(status, int) and HTTPStatus.BAD_REQUEST <= status < HTTPStatus.INTERNAL_SERVER_ERROR:
        return InputError(
            f"task {task}: {endpoint.base} refused a request",
            found=message,
            remedy="The log above has the answer. Usual reasons: prompt and answer are longer than the engine's limits "
            "(lower max_tokens or num_fewshot), or the model has no chat template (choose api completions).",
        )
    if isinstance(error, OSError | asyncio.TimeoutError | TimeoutError) or isinstance(status, int):
        return UnavailableError(
            f"task {task}: {endpoint.base} or the task's dataset does not answer",
            found=message,
            remedy="Check the candidate's pods and, for a task that reads the Hub, the NetworkPolicy `datasets`, or "
            "`hub.networks` of the site for a mirror.",
        )
    return InputError(
        f"task {task} failed in lm_eval", found=message, remedy="Remove the task, or correct its settings in the spec."
    )
