"""Run one step as a pod: the only place where Airflow and the steps meet."""

import json
import logging
from contextlib import contextmanager
from datetime import timedelta
from functools import cached_property
from typing import TYPE_CHECKING, Any

from airflow.providers.cncf.kubernetes.operators.pod import KubernetesPodOperator
from airflow.providers.cncf.kubernetes.utils.pod_manager import OnFinishAction, PodPhase
from airflow.providers.common.compat.sdk import (
    AirflowException,
    AirflowFailException,
    AirflowSkipException,
    DownstreamTasksSkipped,
)
from kubernetes.client import ApiException

from slipway.airflow import pods, results
from slipway.airflow.approval import Approval
from slipway.airflow.notify import lineage
from slipway.airflow.notify.links import report_url
from slipway.airflow.other_runs import OtherRuns
from slipway.airflow.outages import PATIENCE_S, NoAnswerError, Outage, PatientRest
from slipway.airflow.refusals import NO_RETRY, refused
from slipway.airflow.reported import RESULT_KEY, reported
from slipway.airflow.runs import pod_name, run_identity
from slipway.airflow.site import current_site
from slipway.airflow.starting import (
    CANNOT_START,
    LAST_SEEN,
    PodCannotStartError,
    StepPodManager,
    StepPodTrigger,
    api_message,
    as_json,
)
from slipway.airflow.step_documents import read_result, s3_client, write_request
from slipway.tasks.contracts.base import read_contract
from slipway.tasks.contracts.errors import InputError
from slipway.tasks.contracts.fit.placement import SITE_SHAPE
from slipway.tasks.contracts.fit.resolution import ResolvedRelease
from slipway.tasks.contracts.fit.step_kinds import CANDIDATE_STEPS, STEP_KINDS, Documents, StepKind, StepRequest
from slipway.tasks.contracts.fit.step_needs import step_shape
from slipway.tasks.contracts.kubernetes_text import check_pod_values
from slipway.tasks.contracts.measured.drill import SKIPPED
from slipway.tasks.contracts.measured.gate import Verdict
from slipway.tasks.contracts.pods.pod_failures import PodFailure, failure_of, gone
from slipway.tasks.contracts.redaction import bounded
from slipway.tasks.contracts.spec.spec import ReleaseSpec
from slipway.tasks.contracts.step_names import Step
from slipway.tasks.contracts.stored.artifact import STAGES, Layout
from slipway.tasks.contracts.stored.lease import DAG_RUN, ENDED_HOLDERS
from slipway.tasks.contracts.stored.plan import Plan
from slipway.tasks.contracts.stored.release import FAILED_RESULT_KEY, REMEDY_PREFIX, WHY_KEY, StepResult

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Sequence
    from typing import Never

    from airflow.providers.openlineage.extractors import OperatorLineage
    from airflow.sdk import Context
    from airflow.triggers.base import BaseTrigger
    from kubernetes.client import CoreV1Api
    from kubernetes.client import models as k8s

PLAN: Step = "plan"
SITE_SUBJECT = "slipway"
"""Begins the pod's name, and names the folder of the request, of a step of the whole site."""
NEVER_BEGAN = frozenset({None, "upstream_failed", "skipped", "removed"})

MARGIN_S = 300
NOT_FOUND = 404

log = logging.getLogger(__name__)


class StepOperator(KubernetesPodOperator):
    """A pod that runs `python -m slipway.tasks <step>`; its result document becomes the task's XCom. Never subclass it.

    The task succeeds without a pod when the plan says that the stage is stored, and is skipped when there is nothing to
    release. A pod that survives a crash of Airflow is adopted; one that still runs when the task fails is deleted.

    The parent's XCom sidecar is never used: the result is read from the object store after the pod has ended.
    """

    template_fields: "Sequence[str]" = ()
    """No templates: a prompt in a spec may have braces, and must reach the step unchanged."""

    def __init__(self, *, step: Step, spec: ReleaseSpec | None = None, **task: Any) -> None:
        """`spec` is absent for a step of the whole site."""
        site = current_site()
        budget = pods.budget_of(step, spec, site)
        super().__init__(
            kubernetes_conn_id=site.airflow.kubernetes_conn_id,
            cluster_context=site.kubernetes.context,
            namespace=site.kubernetes.pipeline_namespace,
            deferrable=site.airflow.deferrable,
            do_xcom_push=False,
            schedule_timeout_seconds=budget.schedule_s,
            startup_timeout_seconds=budget.pull_s,
            startup_check_interval_seconds=1,
            execution_timeout=timedelta(
                # for a quota, then for a node; the API server may be away for a while
                seconds=2 * budget.schedule_s + pods.deadline_s(step, spec, site) + PATIENCE_S + MARGIN_S
            ),
            termination_grace_period=pods.TERMINATION_GRACE_S,
            termination_message_policy="FallbackToLogsOnError",
            on_finish_action="delete_succeeded_pod",
            log_events_on_startup=False,
            log_events_on_failure=True,
            log_pod_spec_on_failure=False,
            container_name_log_prefix_enabled=False,
            **NO_RETRY,
            **task,
        )
        self.step, self.spec, self.subject = step, spec, spec.name if spec else SITE_SUBJECT
        self.layout = Layout(site.object_store.root)
        self.aws_conn_id = site.airflow.aws_conn_id
        self.pod_failure: PodFailure | None = None
        self.planned: tuple[Plan, str] | None = None

    @property
    def kind(self) -> StepKind:
        """The step's record."""
        return STEP_KINDS[self.step]

    def execute(self, context: "Context") -> None:
        """Run the step's pod, unless none is needed; a failure leaves its text for whoever is told of it.

        Raises:
            AirflowSkipException: there is nothing to release, to roll back or to drill.
            AirflowFailException: a retry cannot help.
            Refusal: the verdict is not `passed`.
            AirflowException: the step failed; a retry may help.
        """
        with self._why_left(context):
            self._execute(context)

    def _execute(self, context: "Context") -> None:
        run = run_identity(context["run_id"])
        plan, release_uri = (None, None) if self.kind.documents else self._planned(context)
        if plan and release_uri and self.step in STAGES and plan.stages[self.step].stored:
            stored = results.stored_stage(self.step, plan.stages[self.step], release_uri, run, self.layout)
            self.log.info(stored.summary)
            self._push(context, stored)
            return
        if self.kind.between_nodes and release_uri and (why := self._one_node()):
            self.log.info(why)
            self._push(context, results.unneeded(self.step, why, release_uri, run))
            return
        try:
            estimate = plan.estimate if plan else None
            self.full_pod_spec = pods.step_pod(self.step, self.spec, current_site(), estimate, run=run)
            self.cmds = ["python", "-m", "slipway.tasks", self.step, *self._arguments(context, run, release_uri)]
            check_pod_values(self.cmds)
        except InputError as error:
            raise AirflowFailException(f"{self.step}: {error}") from error
        self.name = pod_name(self.subject, plan.release_id if plan else None, self.step)
        self.labels = {
            "app.kubernetes.io/managed-by": "slipway",
            **({"slipway.dev/model": self.spec.name} if self.spec else {}),
            "slipway.dev/step": self.step,
            "slipway.dev/run": run,
        }
        try:
            if plan:
                self._check_image(plan, self.full_pod_spec, context)
            self.annotations = self._annotations(context)
            if self.deferrable:
                super().execute(context)
            else:
                self._conclude(context, super().execute)
        except PodCannotStartError as error:  # deferrable: before it was deferred
            raise results.failure(self.step, None, error.failure, None, "") from error
        except ApiException as error:
            if error.status == NOT_FOUND and self.pod is not None:
                raise results.failure(self.step, None, self._lost(_named(self.pod)), None, "") from error
            raise results.refused(self.step, int(error.status or 0), api_message(error), self._shape) from error
        except NoAnswerError as error:
            raise AirflowException(f"{self.step}: {error}") from error

    def defer(self, *, trigger: "BaseTrigger", method_name: str, **later: Any) -> "Never":
        """Defer to a trigger that gives up on a pod that can never start."""
        super().defer(trigger=StepPodTrigger(**trigger.serialize()[1]), method_name=method_name, **later)

    def trigger_reentry(self, context: "Context", event: dict[str, Any]) -> None:
        """Continue as the parent does after the triggerer saw the pod end; then read the result."""
        if CANNOT_START in event:
            self.pod_failure, self.get_logs = PodFailure(**event[CANNOT_START]), False
        self.pod_manager.seen = event.get(LAST_SEEN)
        with self._why_left(context):
            self._conclude(context, super().trigger_reentry, event)

    def get_openlineage_facets_on_complete(self, task_instance: object) -> "OperatorLineage":
        """What a promotion made live of which revision, for Airflow's OpenLineage provider where a site has it."""
        del task_instance  # its XComs cannot be read any more
        if not self.planned or not self.outlets:
            return lineage.nothing()
        return lineage.promoted(*self.planned, current_site().hub.endpoint)

    def get_openlineage_facets_on_failure(self, task_instance: object) -> "OperatorLineage":
        """Nothing: what failed made nothing live."""
        del task_instance
        return lineage.nothing()

    @contextmanager
    def _why_left(self, context: "Context") -> "Iterator[None]":
        try:
            yield
        except (AirflowSkipException, DownstreamTasksSkipped):
            raise
        except AirflowException as error:
            context["ti"].xcom_push(key=WHY_KEY, value=bounded(str(error)))
            raise

    @cached_property
    def client(self) -> "CoreV1Api":
        """The parent's client, which is its hook's as well, but it waits for an API server that does not answer."""
        client = super().client
        client.api_client.rest_client = PatientRest(client.api_client.configuration, Outage())
        return client

    @cached_property
    def pod_manager(self) -> StepPodManager:
        """The parent's pod manager, but it waits for a quota, and gives up on a pod that can never start."""
        return StepPodManager(
            kube_client=self.client, callbacks=self.callbacks, schedule_timeout_s=self.schedule_timeout_seconds
        )

    def cleanup(self, pod: "k8s.V1Pod", remote_pod: "k8s.V1Pod", *arguments: Any, **options: Any) -> None:
        """Clean up as the parent does, but first read how the pod ended: the parent may have read it too early."""
        if remote_pod and not self._killed and remote_pod.status.phase != PodPhase.SUCCEEDED:
            remote_pod = self._seen_at_end(remote_pod)
        super().cleanup(pod, remote_pod, *arguments, **options)

    def build_pod_request_obj(self, *arguments: Any, **options: Any) -> "k8s.V1Pod":
        """Build the pod as the parent does, in a fifth of the time."""
        with pods.light_objects():
            return super().build_pod_request_obj(*arguments, **options)

    def get_or_create_pod(self, pod_request_obj: "k8s.V1Pod", context: "Context") -> "k8s.V1Pod":
        """Find or create the pod as the parent does, but adopt one that succeeded while Airflow was down.

        One of an earlier try that failed is left alone: its end is that try's. The parent would take it for this one's
        if that try could not mark it, as when the API server was away.
        """
        namespace = pod_request_obj.metadata.namespace
        for left in self._left_over(namespace, context):
            if left.status.phase == PodPhase.SUCCEEDED:
                self.log.info("Pod %s succeeded while Airflow was down; its result is used.", left.metadata.name)
                return left
            if left.status.phase == PodPhase.FAILED:
                log.info("Pod %s of an earlier try failed: %s", left.metadata.name, self._why_failed(left))
                self.patch_already_checked(left)
        self.pod = pod = super().get_or_create_pod(pod_request_obj, context)  # which a kill from now on deletes
        if not self.deferrable:  # while the pod starts; a deferred task continues in another process
            self._make_client()
        return pod

    def _left_over(self, namespace: str, context: "Context") -> "list[k8s.V1Pod]":
        """Pods of this task that no try has marked as dealt with."""
        selector = self._build_find_pod_label_selector(context)
        pods_of_task: list[k8s.V1Pod] = self.client.list_namespaced_pod(namespace, label_selector=selector).items
        return pods_of_task

    def _check_image(self, plan: Plan, pod: "k8s.V1Pod", context: "Context") -> None:
        """Refuse to make a stage in another image than the one in its key. A pod that an earlier try left has that one.

        Raises:
            AirflowFailException: the site file changed after the plan.
        """
        planned = plan.stages[self.step].producer.get("image") if self.step in STAGES else None
        image = pod.spec.containers[0].image
        if planned in {None, image}:
            return
        if any(left.status.phase != PodPhase.FAILED for left in self._left_over(pod.metadata.namespace, context)):
            return
        changed = InputError(
            f"{self.step}: its image changed after the release was planned",
            found=image,
            expected=f"{planned}, which is part of the stage's key",
            remedy=f"Plan again: slipway release {plan.name}. Stages whose image is the same are not made again.",
        )
        raise AirflowFailException(str(changed)) from changed

    def _why_failed(self, pod: "k8s.V1Pod") -> str:
        end = results.ended(pod)
        failure = failure_of(as_json(pod), self.base_container_name, self._shape)
        said = f"{end.message or 'no message'} (exit code {end.exit_code})" if end else "its container never ran"
        return str(failure or said)

    def process_pod_deletion(self, pod: "k8s.V1Pod | None", *, reraise: bool = True) -> bool:
        """Delete as the parent does, which keeps failed pods for their logs, but never keep a pod that still runs."""
        if pod is not None and pod.status and pod.status.phase not in PodPhase.terminal_states:
            self.on_finish_action = OnFinishAction.DELETE_POD
        return bool(super().process_pod_deletion(pod, reraise=reraise))

    def on_kill(self) -> None:
        """Kill as the parent does, also when the kill arrives while the pod is being created."""
        self.pod = self.pod or self.pod_request_obj
        super().on_kill()

    def _planned(self, context: "Context") -> tuple[Plan, str]:
        """The run's plan and its release.

        Raises:
            AirflowSkipException: this step has nothing to do.
        """
        result = reported(context, PLAN)
        if result is None:
            raise AirflowSkipException("no release was planned, so there is nothing to do")
        plan = Plan.model_validate(result.data["plan"])
        if plan.action == "nothing" or result.release is None:
            raise AirflowSkipException(result.summary)
        if context["params"]["plan_only"]:
            raise AirflowSkipException("plan_only was set for this run")
        if self.kind.undoes:
            ti, run_id = context["ti"], context["run_id"]
            first, *_, last = CANDIDATE_STEPS
            if reported(context, last):
                raise AirflowSkipException(f"{plan.release_id} was promoted, so there is nothing to undo")
            states = ti.get_task_states(dag_id=ti.dag_id, task_ids=[first], run_ids=[run_id])
            if states.get(run_id, {}).get(first) in NEVER_BEGAN:
                raise AirflowSkipException(f"{plan.release_id} was not rolled out, so there is nothing to undo")
        self.planned = plan, result.release
        return self.planned

    def _unneeded(self, context: "Context", result: StepResult) -> list[str]:
        """Tasks that the plan leaves nothing to do, and that need no process to say so: all but the teardown tasks."""
        plan, params = Plan.model_validate(result.data["plan"]), context["params"]
        later = [task for task in self.get_flat_relatives() if not task.is_teardown]
        if plan.action != "nothing" and not params["plan_only"]:
            return [task.task_id for task in later if isinstance(task, Approval) and params["approval"] == "none"]
        return sorted(task.task_id for task in later)

    def _one_node(self) -> str:
        """Why there is no network between nodes to measure; empty where there is one."""
        if self.spec is None:
            return ""
        try:
            nodes = ResolvedRelease(self.spec, current_site()).serving.nodes
        except InputError as error:
            raise AirflowFailException(f"{self.step}: {error}") from error
        return "the release is served on one node; no pod was started" if nodes == 1 else ""

    def _annotations(self, context: "Context") -> dict[str, str]:
        """What a step that changes the model needs to know about runs. This also ends pods that would interfere."""
        if self.spec is None or not self.kind.changes_model:
            return {}
        site = current_site().kubernetes
        runs = OtherRuns(self.client, site.pipeline_namespace, site.serving_namespace, context["ti"])
        if self.kind.undoes:  # a person may have ended the run while its steps were running
            runs.end_pods(runs.own, besides=self.task_id)
        ended = runs.ended_holders(self.spec) if self.kind.takes_lease else {}
        return {DAG_RUN: str(runs.own), ENDED_HOLDERS: json.dumps(ended)}

    def _arguments(self, context: "Context", run: str, release_uri: str | None) -> list[str]:
        if release_uri:
            return ["--release", release_uri, "--run", run]
        documents = self.kind.documents
        assert documents is not None  # every other step has a release
        uri = self.layout.request(self.subject, run, self.step)
        write_request(uri, self._request(documents, context, run), self.aws_conn_id)
        return ["--request", uri]

    def _request(self, documents: Documents, context: "Context", run: str) -> StepRequest:
        """The run's request. It travels as a document, because Kubernetes would expand `$(NAME)` in a command."""
        site = current_site().digest
        values = {**context["params"], "spec": self.spec, "name": self.subject, "run": run, "site": site}
        if self.spec and self.spec.rollout.drill:
            values["settings"] = self.spec.rollout.drill
        fields = {name: values[name] for name in documents.request.model_fields if name in values}
        return read_contract(documents.request, fields, f"the parameters of run {run}")

    def _conclude(self, context: "Context", run_pod: "Callable[..., Any]", *arguments: Any) -> None:
        """Let the parent run the pod to its end; then read the result, or raise why there is none."""
        run = run_identity(context["run_id"])
        try:
            run_pod(context, *arguments)
        except AirflowException as error:
            end = results.ended(self.remote_pod) or results.ended(self.pod)
            # the parent raises from `finally`, so the actual error is the context of this one
            otherwise = str(results.no_answer(error) or error.__context__ or error)
            why = self.pod_failure or results.cannot_start(error, self._lost)
            failed = self._failed_result(context, run, end)
            if failed:
                self._report(context, failed)
            raise results.failure(self.step, failed, why, end, otherwise) from error
        result = read_result(self._result_uri(context, run), self.aws_conn_id)
        end = results.ended(self.remote_pod) or results.ended(self.pod)
        if result is None or result.outcome == "failed" or not results.is_of(result, run, end):
            actual = f"one of run {result.run}, {result.outcome} at {result.started_at}" if result else "none"
            raise AirflowException(
                f"{self.step}: the pod succeeded but its result is missing: {self._result_uri(context, run)}, "
                f"found {actual}, expected one of run {run}. Check what else writes there; then clear this task."
            )
        self._push(context, result)
        if evidence := result.data.get("evidence"):
            self.log.info("report: %s", report_url(evidence, context["ti"].dag_id, context["run_id"]))
        if self.kind.refusal is not None:
            self._judge(context, result, self.kind.refusal)
        if self.kind.plans and (unneeded := self._unneeded(context, result)):
            raise DownstreamTasksSkipped(tasks=unneeded)  # type: ignore[no-untyped-call]  # Airflow's own

    def _judge(self, context: "Context", result: StepResult, refusal: str) -> None:
        """Skip or fail the task of a step that gives a verdict, unless that is `passed`."""
        verdict = result.data.get("verdict")
        if verdict == SKIPPED:
            raise AirflowSkipException(result.summary)
        if verdict != Verdict.PASSED:
            raise refused(context, f"{self.step}: {refusal}{result.summary}")

    def _seen_at_end(self, pod: "k8s.V1Pod") -> "k8s.V1Pod":
        """Read the pod as it is now, or keep its last state if it is gone; record what ended it."""
        name, namespace = pod.metadata.name, pod.metadata.namespace
        try:
            self.remote_pod = self.hook.get_pod(name, namespace)
        except ApiException as error:
            if error.status == NOT_FOUND:
                self.pod_failure = self._lost(_named(pod))
            return pod
        failure = failure_of(as_json(self.remote_pod), self.base_container_name, self._shape)
        self.pod_failure = self.pod_failure or failure
        return self.remote_pod

    def _lost(self, name: str) -> PodFailure:
        """Why a pod is gone: what it looked like last says who ended it, if they say so."""
        seen = self.pod_manager.seen or self.pod
        failure = failure_of(as_json(seen), self.base_container_name, self._shape) if seen else None
        return failure or gone(name)

    @property
    def _shape(self) -> str:
        return step_shape(self.step, self.spec) if self.spec else SITE_SHAPE

    def _make_client(self) -> None:
        try:
            s3_client(self.aws_conn_id)
        except Exception:  # a store that cannot be reached is reported once there is a result to read
            log.debug("no client of the object store yet", exc_info=True)

    def _failed_result(self, context: "Context", run: str, end: results.Ended | None) -> StepResult | None:
        try:
            result = read_result(self._result_uri(context, run), self.aws_conn_id)
        except Exception:  # whatever the store does, the step's own failure is the one to report
            log.exception("the result of %s could not be read", self.step)
            return None
        return result if result and result.outcome == "failed" and results.is_of(result, run, end) else None

    def _result_uri(self, context: "Context", run: str) -> str:
        if self.kind.documents:
            return self.kind.documents.result_uri(self.layout, self.subject, run)
        plan, _ = self._planned(context)
        return self.layout.result(self.subject, plan.release_id, self.step)

    def _report(self, context: "Context", failed: StepResult) -> None:
        """Leave the result of a failed step for the command, and its remedy for a person who reads the log."""
        if failed.error and failed.error.remedy:
            log.warning("%s%s", REMEDY_PREFIX, failed.error.remedy)
        self._push(context, failed, key=FAILED_RESULT_KEY)

    def _push(self, context: "Context", result: StepResult, *, key: str = RESULT_KEY) -> None:
        # `do_xcom_push` stays False, because to the parent it means the sidecar; so the value is pushed here
        context["ti"].xcom_push(key=key, value=result.model_dump(mode="json"))
        for asset in self.outlets:
            context["outlet_events"][asset].extra = {"release": result.release}


def _named(pod: "k8s.V1Pod") -> str:
    return f"{pod.metadata.namespace}/{pod.metadata.name}"
