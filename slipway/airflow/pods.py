"""The pod of a step: image, resources, identity, volumes and limits, all from the site and the spec. Pure.

A pod holds no secret, only references to Secrets, and meets the restricted Pod Security Standard
(kubernetes.io/docs/concepts/security/pod-security-standards, Kubernetes 1.34).
"""

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

from kubernetes.client import Configuration
from kubernetes.client import models as k8s

from slipway.tasks.contracts.api_keys import OWN_KEY_VARIABLE
from slipway.tasks.contracts.fit.placement import GPU_RESOURCE, site_step
from slipway.tasks.contracts.fit.resolution import ResolvedRelease
from slipway.tasks.contracts.fit.site_objects import READS_DATASETS, SITE_CONFIG_MAP
from slipway.tasks.contracts.fit.step_kinds import HOUR_S, STEP_KINDS, StepKind
from slipway.tasks.contracts.fit.step_needs import needs_gpu
from slipway.tasks.contracts.pods.writes import SCRATCH, volumes
from slipway.tasks.contracts.site.signing import KEY_VARIABLE, SECRET_KEY
from slipway.tasks.contracts.site.site import MLFLOW_TOKEN_VARIABLE, PodShape, Site, StartBudget
from slipway.tasks.contracts.site.store_access import IDENTITY_VARIABLE
from slipway.tasks.contracts.site.telemetry import HEADERS_VARIABLE
from slipway.tasks.contracts.spec.spec import ReleaseSpec
from slipway.tasks.contracts.spec_fields import MLFLOW, VOLUME_VARIABLE, claim_of
from slipway.tasks.contracts.step_names import Step
from slipway.tasks.contracts.stored.lease import DAG_RUN, DAG_RUN_VARIABLE, ENDED_HOLDERS, ENDED_HOLDERS_VARIABLE
from slipway.tasks.contracts.stored.plan import Estimate
from slipway.tasks.contracts.wire.trace_context import TRACEPARENT, trace_parent

SITE_FOLDER = "/etc/slipway"
SCRATCH_FOLDER = SCRATCH.path
SOURCE_FOLDER = "/mnt/source"
USER_ID = 10001  # the user that images/*/Dockerfile create
TERMINATION_GRACE_S = 30
STAYS = {"karpenter.sh/do-not-disrupt": "true", "cluster-autoscaler.kubernetes.io/safe-to-evict": "false"}
"""Annotations that keep autoscalers from removing the node of a running step to save money."""
MAX_DEADLINE_S = 30 * 24 * HOUR_S
"""The longest deadline that a spec may add up to; Kubernetes refuses more than 2^31 - 1 s."""


class _Shared(Configuration):  # type: ignore[misc]
    """A client's configuration that is its own copy. Model objects only read from it whether to validate fields."""

    def __deepcopy__(self, memo: dict[int, Any]) -> "_Shared":
        return self


@contextmanager
def light_objects() -> Iterator[None]:
    """Let the Kubernetes model objects that are made within the block share one configuration of the client.

    Otherwise each has its own, copies too, and making one clears the caches of all loggers: that was 20 of the 25 ms in
    which Airflow merged a pod (https://github.com/kubernetes-client/python/issues/1921; kubernetes 36.0).
    """
    before = Configuration._default  # noqa: SLF001 - get_default_copy makes one where there is none
    if isinstance(before, _Shared):
        yield
        return
    shared = _Shared()
    shared.__dict__.update(before.__dict__ if before else {})
    Configuration.set_default(shared)
    try:
        yield
    finally:
        if Configuration.get_default_copy() is shared:  # else a connection was read meanwhile
            Configuration.set_default(before)


def budget_of(step: Step, spec: ReleaseSpec | None, site: Site) -> StartBudget:
    """Time that the step's pod has to get a node and its image."""
    return site.budgets.of(gpus=spec is not None and needs_gpu(step, spec))


def run_s(step: Step, spec: ReleaseSpec | None, site: Site) -> int:
    """Seconds that the step may run, even if it hangs: the site's own limit, or one that follows from the spec."""
    if step in site.budgets.run_min:
        return min(int(60 * site.budgets.run_min[step]), MAX_DEADLINE_S)
    kind = STEP_KINDS[step]
    if spec is None:
        return kind.deadline_s
    return min(kind.deadline_s + kind.waits_s(spec, site) + _exchange_s(kind, spec, site), MAX_DEADLINE_S)


def _exchange_s(kind: StepKind, spec: ReleaseSpec, site: Site) -> int:
    """How long pods of two releases may take to exchange GPUs: some end, and then others start."""
    if spec.rollout.surge == "full" or not kind.changes_model:
        return 0
    serving = site.budgets.of(gpus=spec.engine.gpu is not None)
    return 2 * spec.drain_s + serving.schedule_s + serving.pull_s + spec.serving.ready_timeout_s


def deadline_s(step: Step, spec: ReleaseSpec | None, site: Site) -> int:
    """The pod's activeDeadlineSeconds, which Kubernetes counts from the node's acceptance: before images are pulled."""
    return min(budget_of(step, spec, site).pull_s + run_s(step, spec, site), MAX_DEADLINE_S)


@light_objects()
def step_pod(
    step: Step, spec: ReleaseSpec | None, site: Site, estimate: Estimate | None = None, *, run: str = ""
) -> k8s.V1Pod:
    """The pod of `step`, complete except for its name, its run's labels and its command.

    Args:
        step: the step.
        spec: the release's spec; None for a step of the whole site.
        site: where the pod runs.
        estimate: the plan's; None before there is a plan.
        run: identity of the run, whose trace the step continues.

    Raises:
        InputError: the site lacks the shape or the image that the step needs.
    """
    kind = STEP_KINDS[step]
    pod = ResolvedRelease(spec, site).step(step, estimate) if spec else site_step(step, site)
    gpus, source = pod.shape.gpus, _source(kind, spec)
    container = k8s.V1Container(
        name="base",
        image=pod.image,
        env=_environment(kind, spec, site, run),
        resources=_resources(pod.shape),
        volume_mounts=[
            k8s.V1VolumeMount(name="site", mount_path=SITE_FOLDER, read_only=True),
            *(k8s.V1VolumeMount(name=each.name, mount_path=SOURCE_FOLDER, read_only=True) for each in source),
            *(k8s.V1VolumeMount(name=folder.volume, mount_path=folder.path) for folder in kind.folders(gpus)),
        ],
        security_context=k8s.V1SecurityContext(
            allow_privilege_escalation=False,
            read_only_root_filesystem=True,
            capabilities=k8s.V1Capabilities(drop=["ALL"]),
        ),
        termination_message_path="/dev/termination-log",
        termination_message_policy="FallbackToLogsOnError",
    )
    return k8s.V1Pod(
        api_version="v1",
        kind="Pod",
        metadata=k8s.V1ObjectMeta(
            namespace=site.kubernetes.pipeline_namespace, labels=_network_labels(kind, spec), annotations=STAYS
        ),
        spec=k8s.V1PodSpec(
            containers=[container],
            restart_policy="Never",
            service_account_name=kind.service_account,
            automount_service_account_token=kind.cluster_access,
            active_deadline_seconds=deadline_s(step, spec, site),
            termination_grace_period_seconds=TERMINATION_GRACE_S,
            node_selector=pod.shape.node_selector,
            tolerations=[k8s.V1Toleration(**toleration.model_dump()) for toleration in pod.shape.tolerations],
            volumes=[*_volumes(kind, pod.shape), *source],
            security_context=k8s.V1PodSecurityContext(
                run_as_non_root=True,
                run_as_user=USER_ID,
                run_as_group=USER_ID,
                fs_group=USER_ID,
                seccomp_profile=k8s.V1SeccompProfile(type="RuntimeDefault"),
            ),
        ),
    )


def _network_labels(kind: StepKind, spec: ReleaseSpec | None) -> dict[str, str] | None:
    """The label by which the network policies let a pod read datasets of the Hub."""
    harness = spec.gate.harness if spec is not None and kind.image == "harness" else None
    return {READS_DATASETS: "true"} if harness is not None and harness.reads_hub else None


def _claim(kind: StepKind, spec: ReleaseSpec | None) -> str | None:
    """The claim that the step reads the model from, where that is on a volume."""
    return claim_of(spec.source.uri) if spec is not None and kind.reads_source else None


def _mounted(kind: StepKind, spec: ReleaseSpec | None) -> dict[str, str]:
    claim = _claim(kind, spec)
    return {VOLUME_VARIABLE: f"{claim}={SOURCE_FOLDER}"} if claim else {}


def _environment(kind: StepKind, spec: ReleaseSpec | None, site: Site, run: str) -> list[k8s.V1EnvVar]:
    values = {
        "SLIPWAY_SITE": f"{SITE_FOLDER}/site.yaml",
        "SLIPWAY_SCRATCH": SCRATCH_FOLDER,
        "SLIPWAY_TERMINATION_LOG": "/dev/termination-log",
        "HOME": SCRATCH_FOLDER,
        "TMPDIR": SCRATCH_FOLDER,
        "PYTHONUNBUFFERED": "1",
        IDENTITY_VARIABLE: kind.service_account,
        **_mounted(kind, spec),
    }
    secrets: dict[str, tuple[str, str]] = {}
    if site.object_store.credentials_secret:
        for name in ("AWS_ACCESS_KEY_ID", "AWS_SECRET_ACCESS_KEY"):
            secrets[name] = (site.object_store.credentials_secret, name)
    token = ResolvedRelease(spec, site).hub_token_secret if spec else None
    if token and kind.hub_access:
        secrets["HF_TOKEN"] = token
    # plan alone asks MLflow: its plan names the folder with the files
    named = kind.plans and spec is not None and (spec.source.uri or "").startswith(MLFLOW)
    if named and site.mlflow and site.mlflow.token_secret:
        secret, _, key = site.mlflow.token_secret.partition("/")
        secrets[MLFLOW_TOKEN_VARIABLE] = (secret, key)
    if kind.asks_models and site.serving.authentication != "none":
        secrets[OWN_KEY_VARIABLE] = (site.serving.authentication.own_key_secret, OWN_KEY_VARIABLE)
    if kind.signs and site.signing and site.signing.key_secret:
        secrets[KEY_VARIABLE] = (site.signing.key_secret, SECRET_KEY)
    if (traces := site.telemetry.traces) and spec is not None:
        values[TRACEPARENT] = trace_parent(spec.name, run)
        if traces.headers_secret:
            secrets[HEADERS_VARIABLE] = (traces.headers_secret, HEADERS_VARIABLE)
    # from annotations, because Kubernetes expands $(NAME) in a value, and a person may choose a run's id
    annotations: dict[str, str] = {}
    if kind.changes_model:
        annotations = {DAG_RUN_VARIABLE: DAG_RUN, ENDED_HOLDERS_VARIABLE: ENDED_HOLDERS}
    return [
        *(k8s.V1EnvVar(name=name, value=value) for name, value in values.items()),
        *(
            k8s.V1EnvVar(
                name=name,
                value_from=k8s.V1EnvVarSource(secret_key_ref=k8s.V1SecretKeySelector(name=secret, key=key)),
            )
            for name, (secret, key) in secrets.items()
        ),
        *(
            k8s.V1EnvVar(
                name=name,
                value_from=k8s.V1EnvVarSource(
                    field_ref=k8s.V1ObjectFieldSelector(field_path=f"metadata.annotations['{annotation}']")
                ),
            )
            for name, annotation in annotations.items()
        ),
    ]


def _resources(shape: PodShape) -> k8s.V1ResourceRequirements:
    """Limit memory to what is requested, so that a neighbour cannot get a pod evicted; CPU may be borrowed."""
    devices = {GPU_RESOURCE: str(shape.gpus)} if shape.gpus else {}
    return k8s.V1ResourceRequirements(
        requests={"cpu": shape.cpu, "memory": shape.memory, "ephemeral-storage": shape.scratch, **devices},
        limits={"memory": shape.memory, **devices},
    )


def _source(kind: StepKind, spec: ReleaseSpec | None) -> list[k8s.V1Volume]:
    """The volume with the model's files, for a step that reads them there."""
    claim = _claim(kind, spec)
    if claim is None:
        return []
    # a volume that is not read-only gets fsGroup as the owner of its files, which changes their times
    reference = k8s.V1PersistentVolumeClaimVolumeSource(claim_name=claim, read_only=True)
    return [k8s.V1Volume(name="source", persistent_volume_claim=reference)]


def _volumes(kind: StepKind, shape: PodShape) -> list[k8s.V1Volume]:
    gpus = shape.gpus
    written = volumes(kind.folders(gpus), shape.scratch, gpus, ranks=gpus if gpus > 1 else 0)
    return [
        k8s.V1Volume(name="site", config_map=k8s.V1ConfigMapVolumeSource(name=SITE_CONFIG_MAP)),
        *(
            k8s.V1Volume(
                name=volume["name"],
                empty_dir=k8s.V1EmptyDirVolumeSource(
                    medium=volume["emptyDir"].get("medium"), size_limit=volume["emptyDir"]["sizeLimit"]
                ),
            )
            for volume in written
        ),
    ]
