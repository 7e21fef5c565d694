"""Runs single steps as Airflow's task runner would: same calls, with the run's XComs and states held here."""

from dataclasses import dataclass, field
from datetime import UTC, datetime, timedelta
from types import SimpleNamespace
from typing import Any

from airflow.sdk.bases.operator import ExecutorSafeguard

from slipway.airflow.runs import run_identity
from slipway.airflow.step_operator import StepOperator
from slipway.tasks.contracts.stored.artifact import Layout
from slipway.tasks.contracts.stored.release import Failure, StepResult
from tests.fakes.kube.kubernetes_pods import PodEnd, PodServer
from tests.fakes.releases import release

RUN_ID = "manual__2026-01-01T00:00:00+00:00"
RUN = run_identity(RUN_ID)
LAYOUT = Layout("s3://slipway/team-a")


@dataclass
class TaskInstance:
    """What the operator asks of Airflow's task instance."""

    task_id: str
    run: "StepRuns"
    dag_id: str = "release__demo"
    run_id: str = RUN_ID
    map_index: int = -1
    try_number: int = 1
    max_tries: int = 2
    start_date: datetime = field(default_factory=lambda: datetime.now(UTC))

    def xcom_push(self, key: str, value: Any) -> None:
        self.run.xcoms[self.task_id, key] = value

    def xcom_pull(self, task_ids: str, key: str) -> Any:
        return self.run.xcoms.get((task_ids, key))

    def get_task_states(self, dag_id: str, run_ids: list[str], task_ids: list[str] | None = None) -> dict[str, Any]:
        assert (dag_id, run_ids) == (self.dag_id, [RUN_ID])
        wanted = task_ids or list(self.run.states)
        return {RUN_ID: {task: self.run.states[task] for task in wanted if task in self.run.states}}

    def get_dr_count(self, dag_id: str, run_ids: list[str], states: list[str]) -> int:
        assert states == ["queued", "running"]
        return sum(f"{dag_id}/{run_id}" in self.run.active_runs for run_id in run_ids)


class StepRuns:
    """The steps of one run of one release."""

    def __init__(self, cluster: PodServer, bucket: Any) -> None:
        self.cluster, self.bucket = cluster, bucket
        self.release = release()
        self.xcoms: dict[tuple[str, str], Any] = {}
        self.states: dict[str, str] = {}
        self.active_runs: set[str] = set()

    @property
    def release_uri(self) -> str:
        return LAYOUT.release("demo", self.release.id)

    def deferred(self) -> None:
        """What happens while a task waits in the triggerer."""

    def planned(self, *, action: str = "release", stored: tuple[str, ...] = ()) -> None:
        """Leave the XCom that plan leaves."""
        plan = self.release.plan
        stages = {name: stage.model_copy(update={"stored": name in stored}) for name, stage in plan.stages.items()}
        plan = plan.model_copy(update={"action": action, "stages": stages})
        result = self.result("plan", release=self.release_uri, data={"plan": plan.model_dump(mode="json")})
        self.xcoms["plan", "return_value"] = result.model_dump(mode="json")

    def result(self, step: str, **changes: Any) -> StepResult:
        values = {
            "step": step,
            "release": self.release_uri,
            "run": RUN,
            "outcome": "done",
            "summary": f"{step} is done",
        }
        return StepResult.model_validate({**values, "started_at": datetime.now(UTC), "seconds": 0.1, **changes})

    def failed(self, step: str, exit_code: int, message: str, **changes: Any) -> StepResult:
        error = Failure(kind="InputError", exit_code=exit_code, message=message)
        return self.result(step, outcome="failed", summary=message, error=error, **changes)

    def write(self, result: StepResult) -> None:
        """Write a result where the step writes it."""
        uri = LAYOUT.result("demo", self.release.id, result.step)
        if result.step == "plan":
            uri = LAYOUT.plan("demo", result.run)
        if result.step == "drill":
            uri = LAYOUT.drill("demo", result.run)
        self.bucket.put_object(Key=uri.removeprefix("s3://slipway/"), Body=result.model_dump_json().encode())

    def ends(self, result: StepResult | None, **end: Any) -> None:
        """Every pod from now on writes `result` and ends so."""

        def script(_: dict[str, Any]) -> PodEnd:
            if result is not None:
                self.write(result.model_copy(update={"started_at": datetime.now(UTC)}))
            return PodEnd(**end)

        self.cluster.script = script

    def operator(self, step: str) -> StepOperator:
        return StepOperator(task_id=step, step=step, spec=self.release.spec)

    def context(self, operator: StepOperator, **params: Any) -> dict[str, Any]:
        given = {"revision": "v1", "force": False, "plan_only": False, "approval": "none", **params}
        ti = TaskInstance(operator.task_id, self)
        return {"ti": ti, "run_id": RUN_ID, "params": given, "dag": SimpleNamespace(), "task": operator}

    def execute(self, step: str, **params: Any) -> Any:
        """Run the step; its XCom."""
        operator = self.operator(step)
        ExecutorSafeguard.tracker.set(operator)
        operator.execute(self.context(operator, **params))
        return self.xcoms.get((step, "return_value"))

    @staticmethod
    def long_ago() -> datetime:
        return datetime.now(UTC) - timedelta(minutes=5)
