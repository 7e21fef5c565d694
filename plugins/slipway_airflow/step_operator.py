"""Run one step as a pod: the only place where Airflow and the steps meet."""

import logging
from datetime import timedelta
from typing import TYPE_CHECKING, Any

from airflow.providers.cncf.kubernetes.operators.pod import KubernetesPodOperator
from airflow.providers.cncf.kubernetes.utils.pod_manager import OnFinishAction, PodPhase
from airflow.sdk.exceptions import AirflowException, AirflowFailException, AirflowSkipException

from plugins.slipway_airflow import pods, results
from plugins.slipway_airflow.runs import pod_name, run_identity
from plugins.slipway_airflow.site import current_site
from tasks.contracts.artifact import STAGES, Layout
from tasks.contracts.compatibility import needs_gpu
from tasks.contracts.errors import InputError
from tasks.contracts.gate import Verdict
from tasks.contracts.plan import Plan
from tasks.contracts.release import Step, StepResult
from tasks.contracts.spec import ReleaseSpec

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from airflow.sdk import Context
    from kubernetes.client import models as k8s

XCOM_KEY = "return_value"
PLAN: Step = "plan"
REVERT: Step = "revert"
UNPLANNED = frozenset({PLAN, REVERT})
"""Steps that no plan comes before."""
ROLL_OUT: Step = "roll-out"
NEVER_BEGAN = frozenset({None, "upstream_failed", "skipped", "removed"})

# A node from zero takes up to 10 minutes, an image of 20 GB as long again (apple/axlearn#362, airflow#49784).
GPU_START_S = 1800
START_S = 600
MARGIN_S = 300

log = logging.getLogger(__name__)


class StepOperator(KubernetesPodOperator):
    """A pod that runs `python -m tasks <step>`; its result document becomes the task's XCom. Never subclass it.

    The task succeeds without a pod when the plan found the stage stored, and is skipped when the plan found nothing to
    do. A pod that outlives a crash of Airflow is found again; one that has not ended when the task fails is deleted.

    The parent's XCom sidecar is never used: the result is read from the object store after the pod ended.
    """

    template_fields: "Sequence[str]" = ()
    """None: a prompt in a spec may hold braces, and must reach the step as it was written."""

    def __init__(self, *, step: Step, spec: ReleaseSpec, **task: Any) -> None:
        site = current_site()
        start_s = GPU_START_S if needs_gpu(step, spec) else START_S
        super().__init__(
            kubernetes_conn_id=site.airflow.kubernetes_conn_id,
            cluster_context=site.kubernetes.context,
            namespace=site.kubernetes.pipeline_namespace,
            deferrable=site.airflow.deferrable,
            durable=True,
            do_xcom_push=False,
            schedule_timeout_seconds=start_s,
            startup_timeout_seconds=start_s,
            startup_check_interval_seconds=1,
            execution_timeout=timedelta(seconds=2 * start_s + pods.deadline_s(step, spec) + MARGIN_S),
            termination_grace_period=pods.TERMINATION_GRACE_S,
            termination_message_policy="FallbackToLogsOnError",
            on_finish_action="delete_succeeded_pod",
            log_events_on_startup=False,
            log_events_on_failure=True,
            log_pod_spec_on_failure=False,
            container_name_log_prefix_enabled=False,
            **task,
        )
        self.step, self.spec = step, spec
        self.layout = Layout(site.object_store.root)
        self.aws_conn_id = site.airflow.aws_conn_id

    def execute(self, context: "Context") -> None:
        """Run the step's pod, or find that none is needed.

        Raises:
            AirflowSkipException: there is nothing to release, or nothing to roll back.
            AirflowFailException: a retry cannot help.
            AirflowException: the step failed; a retry may help.
        """
        run = run_identity(context["run_id"])
        plan, release_uri = (None, None) if self.step in UNPLANNED else self._planned(context)
        if plan and release_uri and self.step in STAGES and plan.stages[self.step].stored:
            stored = results.stored_stage(self.step, plan.stages[self.step], release_uri, run, self.layout)
            self.log.info(stored.summary)
            self._push(context, stored)
            return
        try:
            estimate = plan.estimate if plan else None
            self.full_pod_spec = pods.step_pod(self.step, self.spec, current_site(), estimate)
        except InputError as error:
            raise AirflowFailException(f"{self.step}: {error}") from error
        self.name = pod_name(self.spec.name, plan.release_id if plan else None, self.step)
        self.labels = {
            "app.kubernetes.io/managed-by": "slipway",
            "slipway.dev/model": self.spec.name,
            "slipway.dev/step": self.step,
            "slipway.dev/run": run,
        }
        self.cmds = ["python", "-m", "tasks", self.step, *self._arguments(context, run, release_uri)]
        if self.deferrable:
            super().execute(context)
        else:
            self._conclude(context, super().execute)

    def trigger_reentry(self, context: "Context", event: dict[str, Any]) -> None:
        """As the parent, when the triggerer saw the pod end; then take the result as after a pod that was awaited."""
        self._conclude(context, super().trigger_reentry, event)

    def get_or_create_pod(self, pod_request_obj: "k8s.V1Pod", context: "Context") -> "k8s.V1Pod":
        """As the parent, but a pod that finished its work while nobody watched counts, and is not run again."""
        left = self.find_pod(pod_request_obj.metadata.namespace, context=context)
        if left is not None and left.status.phase == PodPhase.SUCCEEDED:
            self.log.info("Pod %s succeeded while Airflow was away; its result is taken.", left.metadata.name)
            return left
        return super().get_or_create_pod(pod_request_obj, context)

    def process_pod_deletion(self, pod: "k8s.V1Pod | None", *, reraise: bool = True) -> bool:
        """As the parent, which keeps failed pods for their logs; a pod that never ended would also keep its GPU."""
        if pod is not None and pod.status and pod.status.phase not in PodPhase.terminal_states:
            self.on_finish_action = OnFinishAction.DELETE_POD
        return bool(super().process_pod_deletion(pod, reraise=reraise))

    def on_kill(self) -> None:
        """As the parent, and also when the kill arrives while the pod is being created."""
        self.pod = self.pod or self.pod_request_obj
        super().on_kill()

    def _planned(self, context: "Context") -> tuple[Plan, str]:
        """The run's plan and its release, or the reason why this step has nothing to do."""
        value = context["ti"].xcom_pull(task_ids=PLAN, key=XCOM_KEY)
        if value is None:
            raise AirflowSkipException("no release was planned, so there is nothing to do")
        result = StepResult.model_validate(value)
        plan = Plan.model_validate(result.data["plan"])
        if plan.action == "nothing" or result.release is None:
            raise AirflowSkipException(result.summary)
        if context["params"]["plan_only"]:
            raise AirflowSkipException("only the plan was asked for")
        if self.step == "roll-back":
            ti, run_id = context["ti"], context["run_id"]
            states = ti.get_task_states(dag_id=ti.dag_id, task_ids=[ROLL_OUT], run_ids=[run_id])
            if states.get(run_id, {}).get(ROLL_OUT) in NEVER_BEGAN:
                raise AirflowSkipException(f"nothing was rolled out of {plan.release_id}, so there is nothing to undo")
        return plan, result.release

    def _arguments(self, context: "Context", run: str, release_uri: str | None) -> list[str]:
        if release_uri:
            return ["--release", release_uri, "--run", run]
        params = context["params"]
        if self.step == REVERT:
            return ["--name", self.spec.name, "--run", run, "--reason", params["reason"]]
        return [
            *("--spec", self.spec.model_dump_json()),
            *("--run", run),
            *("--revision", params["revision"]),
            *(["--force"] if params["force"] else []),
        ]

    def _conclude(self, context: "Context", run_pod: "Callable[..., Any]", *arguments: Any) -> None:
        """Let the parent run the pod to its end; then take the result, or say in words why there is none."""
        run = run_identity(context["run_id"])
        try:
            run_pod(context, *arguments)
        except AirflowException as error:
            end = results.ended(self.remote_pod) or results.ended(self.pod)
            # the parent raises from `finally`, so that what really happened is the context of what arrives here
            otherwise = str(error.__context__ or error)
            raise results.failure(self.step, self._failed_result(context, run, end), end, otherwise) from error
        result = self._read_result(self._result_uri(context, run))
        end = results.ended(self.remote_pod) or results.ended(self.pod)
        if result is None or result.outcome == "failed" or not results.is_of(result, run, end):
            found = f"one of run {result.run}, {result.outcome}, of {result.started_at}" if result else "none"
            raise AirflowException(
                f"{self.step}: the pod ended well but its result is missing: {self._result_uri(context, run)}, "
                f"found {found}, expected one of run {run}. Look whether something else writes there; clear this task."
            )
        self._push(context, result)
        verdict = result.data.get("verdict")
        if self.step == "gate" and verdict != Verdict.PASSED:
            raise AirflowFailException(f"gate: the release is refused. {result.summary}")

    def _failed_result(self, context: "Context", run: str, end: results.Ended | None) -> StepResult | None:
        try:
            result = self._read_result(self._result_uri(context, run))
        except Exception:  # whatever the store does, the step's own failure is what has to be reported
            log.exception("the result of %s could not be read", self.step)
            return None
        return result if result and result.outcome == "failed" and results.is_of(result, run, end) else None

    def _result_uri(self, context: "Context", run: str) -> str:
        if self.step == PLAN:
            return self.layout.plan(self.spec.name, run)
        if self.step == REVERT:
            return self.layout.revert(self.spec.name, run)
        plan, _ = self._planned(context)
        return self.layout.result(self.spec.name, plan.release_id, self.step)

    def _read_result(self, uri: str) -> StepResult | None:
        """The document at `uri`; None when there is none."""
        # imported here, for boto3 takes half a second that parsing a DAG should not pay
        from airflow.providers.amazon.aws.hooks.s3 import S3Hook  # noqa: PLC0415

        client = S3Hook(aws_conn_id=self.aws_conn_id).get_conn()
        bucket, key = S3Hook.parse_s3_url(uri)
        try:
            body = client.get_object(Bucket=bucket, Key=key)["Body"].read()
        except client.exceptions.NoSuchKey:
            return None
        return StepResult.model_validate_json(body)

    def _push(self, context: "Context", result: StepResult) -> None:
        # `do_xcom_push` stays False, for to the parent it means the sidecar; so the value is pushed by hand
        context["ti"].xcom_push(key=XCOM_KEY, value=result.model_dump(mode="json"))
