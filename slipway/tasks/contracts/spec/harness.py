"""`gate.harness` of a spec: tasks of EleutherAI's lm-evaluation-harness, and the scores that a candidate needs."""

from typing import Annotated, Literal, Self

from pydantic import Field, StringConstraints, model_validator

from slipway.tasks.contracts.base import Contract, UserDocument
from slipway.tasks.contracts.spec_fields import MAX_REQUESTS, PLAIN_ANSWER_TOKENS, AnswerTokens, HubFileUri

MAX_HARNESS_TASKS = 50
MAX_FEWSHOT = 100
OWN_FILTER = "stripped"
"""Filter of tasks made from `questions`: the answer without the spaces around it."""

HarnessName = Annotated[str, StringConstraints(pattern=r"^[A-Za-z0-9][A-Za-z0-9_.-]*$", max_length=100)]
"""Name of a task, a metric or a filter, as lm_eval's own are written."""
Share = Annotated[float, Field(ge=0, le=1)]


class HarnessLimit(Contract):
    """One line of the gate: a score of one task, and the limit that it is judged by."""

    task: str
    metric: str
    filter: str
    at_least: float | None = None
    max_drop_of_live: float | None = None

    @property
    def is_upper(self) -> bool:
        """Whether the limit is an upper one: a drop has an upper limit, a score a lower one."""
        return self.max_drop_of_live is not None

    @property
    def limit(self) -> float:
        """The limit that is set."""
        return next(value for value in (self.max_drop_of_live, self.at_least) if value is not None)

    @property
    def score(self) -> str:
        """The key of the score in lm_eval's results."""
        return f"{self.metric},{self.filter}"


class HarnessTask(UserDocument):
    """A task, how much of it is run, and the limits of its score.

    `task` names one of lm_eval's own tasks, or with `questions` a task that is made from a dataset file.
    """

    task: HarnessName
    questions: HubFileUri | None = Field(
        default=None, description='JSONL on the Hub, one {"prompt": str, "answer": str} per line: a task of your own'
    )
    samples: int | None = Field(
        default=None, ge=1, le=MAX_REQUESTS, description="documents that are asked, the first ones; all when absent"
    )
    num_fewshot: int | None = Field(
        default=None, ge=0, le=MAX_FEWSHOT, description="examples before each question; the task's own when absent"
    )
    max_tokens: AnswerTokens | None = Field(
        default=None,
        description=f"tokens of an answer at most; the task's own when absent, {PLAIN_ANSWER_TOKENS} for questions",
    )
    metric: HarnessName = Field(default="exact_match", description="metric, as lm_eval's table of results names it")
    filter: HarnessName | None = Field(
        default=None, description="filter in that table, such as strict-match; when absent none, or stripped"
    )
    at_least: Share | None = Field(default=None, description="lowest score")
    max_drop_of_live: Share | None = Field(
        default=None, description="how far below the live release's the score may be"
    )
    min_count: int = Field(default=30, ge=1, le=MAX_REQUESTS, description="fewer documents make the lines inconclusive")

    @model_validator(mode="after")
    def _has_a_limit(self) -> Self:
        if self.at_least is None and self.max_drop_of_live is None:
            raise ValueError(f"{self.task}: give at_least, max_drop_of_live or both")
        if self.samples is not None and self.samples < self.min_count:
            raise ValueError(
                f"{self.task}: samples {self.samples} is below min_count {self.min_count}, so no line could pass"
            )
        return self

    @model_validator(mode="after")
    def _questions_have_no_examples(self) -> Self:
        if self.questions and self.num_fewshot:
            raise ValueError(f"{self.task}: num_fewshot does not apply to questions, which have no examples")
        return self

    @property
    def limits(self) -> tuple[HarnessLimit, ...]:
        """A line for each limit."""
        chosen = self.filter or (OWN_FILTER if self.questions else "none")
        named = {"task": self.task, "metric": self.metric, "filter": chosen}
        values = {"at_least": self.at_least, "max_drop_of_live": self.max_drop_of_live}
        return tuple(
            HarnessLimit.model_validate({**named, name: value}) for name, value in values.items() if value is not None
        )


class Harness(UserDocument):
    """Tasks that step evaluate sends to the candidate's OpenAI endpoint."""

    api: Literal["chat", "completions"] = Field(
        default="chat", description="chat applies the model's chat template; completions continues prompts as they are"
    )
    concurrency: int = Field(default=8, ge=1, le=1024, description="requests in flight")
    tasks: tuple[HarnessTask, ...] = Field(min_length=1, max_length=MAX_HARNESS_TASKS)

    @model_validator(mode="after")
    def _names_are_unique(self) -> Self:
        names = [task.task for task in self.tasks]
        if repeated := sorted({name for name in names if names.count(name) > 1}):
            raise ValueError(f"gate.harness.tasks names {', '.join(repeated)} more than once")
        return self

    @property
    def reads_hub(self) -> bool:
        """Whether a task's documents come from the Hub while it runs; those of `questions` are stored by plan."""
        return any(task.questions is None for task in self.tasks)
