"""The pod of a step: image, resources, identity, volumes and limits, all from the site and the spec. Pure.

A pod holds no secret, only references to Secrets, and meets the restricted Pod Security Standard
(kubernetes.io/docs/concepts/security/pod-security-standards, Kubernetes 1.34).
"""

from dataclasses import dataclass
from typing import Literal

from kubernetes.client import models as k8s

from tasks.contracts.compatibility import gpus_to_hold, needs_gpu
from tasks.contracts.errors import InputError
from tasks.contracts.plan import Estimate
from tasks.contracts.release import Step
from tasks.contracts.site import PodShape, Site
from tasks.contracts.spec import GROUP_PATIENCE_S, ReleaseSpec

SITE_CONFIG_MAP = "slipway-site"
SITE_FOLDER = "/etc/slipway"
SCRATCH_FOLDER = "/scratch"
GPU_RESOURCE = "nvidia.com/gpu"
GPU_PRODUCT_LABEL = "nvidia.com/gpu.product"
USER_ID = 10001  # the user that images/*/Dockerfile make
TERMINATION_GRACE_S = 30
HOUR_S = 3600

ShapeName = Literal["small", "transfer", "compute", "serving", "gpu"]


@dataclass(frozen=True)
class StepKind:
    """What steps of one kind have in common."""

    shape: ShapeName
    service_account: str
    deadline_s: int
    cluster_access: bool = False
    hub_access: bool = False


KINDS: dict[Step, StepKind] = {
    "plan": StepKind("small", "slipway-planner", deadline_s=HOUR_S // 4, hub_access=True),
    "download": StepKind("transfer", "slipway-downloader", deadline_s=12 * HOUR_S, hub_access=True),
    "quantize": StepKind("compute", "slipway-builder", deadline_s=24 * HOUR_S),
    "build": StepKind("compute", "slipway-builder", deadline_s=24 * HOUR_S),
    "assemble": StepKind("serving", "slipway-builder", deadline_s=2 * HOUR_S),
    "publish": StepKind("transfer", "slipway-publisher", deadline_s=12 * HOUR_S),
    "roll-out": StepKind("small", "slipway-deployer", deadline_s=HOUR_S // 4, cluster_access=True),
    "smoke-test": StepKind("small", "slipway-measurer", deadline_s=HOUR_S, cluster_access=True),
    "benchmark": StepKind("small", "slipway-measurer", deadline_s=HOUR_S, cluster_access=True),
    "gate": StepKind("small", "slipway-measurer", deadline_s=HOUR_S // 2),
    "promote": StepKind("small", "slipway-deployer", deadline_s=HOUR_S // 2, cluster_access=True),
    "roll-back": StepKind("small", "slipway-deployer", deadline_s=HOUR_S // 2, cluster_access=True),
    "revert": StepKind("small", "slipway-deployer", deadline_s=HOUR_S // 4, cluster_access=True),
}
"""A deadline is no estimate: it is when a pod that hangs has cost enough. The spec's own waits are added to it."""


def deadline_s(step: Step, spec: ReleaseSpec) -> int:
    """Seconds after its start when Kubernetes ends the pod, however the step hangs."""
    asked = KINDS[step].deadline_s
    load, rollout = spec.gate.benchmark, spec.rollout
    if step in {"roll-out", "revert"}:
        asked += spec.serving.ready_timeout_s
    if step == "roll-out" and spec.serving.group is not None:
        asked += GROUP_PATIENCE_S
    if step == "benchmark":
        rounds = sum((load.requests + load.warmup) / level + 1 for level in load.concurrency)
        asked += int(2 * rounds * load.request_timeout_s)
    if step == "promote":
        asked += rollout.bake_s * (len(rollout.steps) + 1 if rollout.strategy == "canary" else 1)
    return asked


def step_pod(step: Step, spec: ReleaseSpec, site: Site, estimate: Estimate | None = None) -> k8s.V1Pod:
    """The pod of `step`, complete but for its name, its run's labels and its command.

    Args:
        step: which.
        spec: of the release.
        site: where.
        estimate: of the plan; None where no plan comes before.

    Raises:
        InputError: the site lacks the shape or the image that the step needs.
    """
    kind = KINDS[step]
    shape = _shape(step, spec, site)
    gpus = _gpus(step, spec, site, shape, estimate)
    container = k8s.V1Container(
        name="base",
        image=_image(step, spec, site),
        env=_environment(step, spec, site),
        resources=_resources(shape, gpus),
        volume_mounts=[
            k8s.V1VolumeMount(name="site", mount_path=SITE_FOLDER, read_only=True),
            k8s.V1VolumeMount(name="scratch", mount_path=SCRATCH_FOLDER),
            *([k8s.V1VolumeMount(name="shared-memory", mount_path="/dev/shm")] if gpus else []),  # noqa: S108
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
        metadata=k8s.V1ObjectMeta(namespace=site.kubernetes.pipeline_namespace),
        spec=k8s.V1PodSpec(
            containers=[container],
            restart_policy="Never",
            service_account_name=kind.service_account,
            automount_service_account_token=kind.cluster_access,
            active_deadline_seconds=deadline_s(step, spec),
            termination_grace_period_seconds=TERMINATION_GRACE_S,
            node_selector=shape.node_selector | ({GPU_PRODUCT_LABEL: spec.engine.gpu} if gpus else {}),
            tolerations=[k8s.V1Toleration(**toleration.model_dump()) for toleration in shape.tolerations],
            volumes=_volumes(shape, gpus),
            security_context=k8s.V1PodSecurityContext(
                run_as_non_root=True,
                run_as_user=USER_ID,
                run_as_group=USER_ID,
                fs_group=USER_ID,
                seccomp_profile=k8s.V1SeccompProfile(type="RuntimeDefault"),
            ),
        ),
    )


def _shape(step: Step, spec: ReleaseSpec, site: Site) -> PodShape:
    name: ShapeName = "gpu" if needs_gpu(step, spec) else KINDS[step].shape
    if name not in site.shapes:
        raise InputError(
            f"site {site.name} has the shapes {', '.join(sorted(site.shapes))}; {step} needs {name}. "
            f"Add shapes.{name} to the site file."
        )
    return site.shapes[name]


def _image(step: Step, spec: ReleaseSpec, site: Site) -> str:
    if step != "assemble" and not needs_gpu(step, spec):
        return site.images.tasks
    if step == "quantize" and spec.engine.kind != "trt-engine":
        return _modelopt_image(spec, site)
    image = spec.serving.image or site.images.serving.get(spec.engine.kind)
    if image is None:
        raise InputError(
            f"site {site.name} has no image for engine {spec.engine.kind}, which {step} runs in. "
            f"Add images.serving.{spec.engine.kind} to the site file or serving.image to the spec."
        )
    return image


def _modelopt_image(spec: ReleaseSpec, site: Site) -> str:
    if site.images.modelopt is None:
        raise InputError(
            f"site {site.name} has no image with ModelOpt, which quantizes for {spec.engine.kind}. Add images.modelopt "
            "to the site file, or choose quantization.format none."
        )
    return site.images.modelopt


def _gpus(step: Step, spec: ReleaseSpec, site: Site, shape: PodShape, estimate: Estimate | None) -> int:
    """One GPU per rank, at most what a node has; and none to assemble ranks of several nodes, which no pod can boot.

    quantize takes as many as hold the model before it is smaller, and those of the shape when they are more: a model of
    one rank is spread over them as it is calibrated.
    """
    if not needs_gpu(step, spec):
        return 0
    ranks = spec.engine.tensor_parallel * spec.engine.pipeline_parallel
    product = site.gpus.get(spec.engine.gpu or "")
    of_a_node = min(ranks, product.per_node) if product else ranks
    if step == "assemble" and of_a_node < ranks:
        return 0
    if step != "quantize":
        return of_a_node
    holding = gpus_to_hold(estimate.gpu_bytes, product) if product and estimate else 0
    return max(shape.gpus, of_a_node, holding)


def _environment(step: Step, spec: ReleaseSpec, site: Site) -> list[k8s.V1EnvVar]:
    values = {
        "SLIPWAY_SITE": f"{SITE_FOLDER}/site.yaml",
        "SLIPWAY_SCRATCH": SCRATCH_FOLDER,
        "SLIPWAY_TERMINATION_LOG": "/dev/termination-log",
        "HOME": SCRATCH_FOLDER,
        "TMPDIR": SCRATCH_FOLDER,
        "PYTHONUNBUFFERED": "1",
    }
    secrets: dict[str, tuple[str, str]] = {}
    if site.object_store.credentials_secret:
        for name in ("AWS_ACCESS_KEY_ID", "AWS_SECRET_ACCESS_KEY"):
            secrets[name] = (site.object_store.credentials_secret, name)
    if spec.source.token_secret and KINDS[step].hub_access:
        secret, _, key = spec.source.token_secret.partition("/")
        secrets["HF_TOKEN"] = (secret, key)
    return [
        *(k8s.V1EnvVar(name=name, value=value) for name, value in values.items()),
        *(
            k8s.V1EnvVar(
                name=name,
                value_from=k8s.V1EnvVarSource(secret_key_ref=k8s.V1SecretKeySelector(name=secret, key=key)),
            )
            for name, (secret, key) in secrets.items()
        ),
    ]


def _resources(shape: PodShape, gpus: int) -> k8s.V1ResourceRequirements:
    """Memory is limited to what is asked for, so that a pod never dies of a neighbour; CPU may be borrowed."""
    devices = {GPU_RESOURCE: str(gpus)} if gpus else {}
    return k8s.V1ResourceRequirements(
        requests={"cpu": shape.cpu, "memory": shape.memory, "ephemeral-storage": shape.scratch, **devices},
        limits={"memory": shape.memory, **devices},
    )


def _volumes(shape: PodShape, gpus: int) -> list[k8s.V1Volume]:
    volumes = [
        k8s.V1Volume(name="site", config_map=k8s.V1ConfigMapVolumeSource(name=SITE_CONFIG_MAP)),
        k8s.V1Volume(name="scratch", empty_dir=k8s.V1EmptyDirVolumeSource(size_limit=shape.scratch)),
    ]
    if gpus:  # NCCL exchanges between ranks through /dev/shm; a container's own is 64 MiB
        shared = k8s.V1EmptyDirVolumeSource(medium="Memory")
        volumes.append(k8s.V1Volume(name="shared-memory", empty_dir=shared))
    return volumes
