"""The site: where a release runs. All that differs between a laptop and a cluster stands here and nowhere else."""

from typing import Annotated, Literal

from pydantic import Field, StringConstraints

from tasks.contracts.base import Contract
from tasks.contracts.spec import EngineKind

Quantity = Annotated[str, StringConstraints(pattern=r"^[0-9]+(\.[0-9]+)?(m|Ki|Mi|Gi|Ti|k|M|G|T)?$")]
"""A Kubernetes resource quantity, such as `500m` or `8Gi`."""

SUFFIXES: dict[str, float] = {
    "m": 1e-3,
    **{unit: 1024 ** (power + 1) for power, unit in enumerate(("Ki", "Mi", "Gi", "Ti"))},
    **{unit: 1000 ** (power + 1) for power, unit in enumerate(("k", "M", "G", "T"))},
}


def quantity(text: Quantity) -> float:
    """The number that a quantity stands for; of memory and storage, bytes."""
    number = text.rstrip("mKMGTki")
    return float(number) * SUFFIXES.get(text[len(number) :], 1)


class Kubernetes(Contract):
    """Which cluster, and the two namespaces."""

    context: str | None = Field(default=None, description="kubeconfig context; the current one when absent")
    pipeline_namespace: str = "slipway"
    serving_namespace: str = "slipway-serving"


class ObjectStoreSite(Contract):
    """Where artifacts, releases and channels lie."""

    bucket: str = Field(pattern=r"^[a-z0-9][a-z0-9.-]{1,61}[a-z0-9]$")
    prefix: str = Field(default="", pattern=r"^([A-Za-z0-9._-]+(/[A-Za-z0-9._-]+)*)?$")
    endpoint: str | None = Field(default=None, pattern=r"^https?://", description="AWS's own when absent")
    region: str = "us-east-1"
    credentials_secret: str | None = Field(
        default=None,
        description="Secret with AWS_ACCESS_KEY_ID and AWS_SECRET_ACCESS_KEY; absent: the pod's cloud identity",
    )

    @property
    def root(self) -> str:
        """`s3://bucket[/prefix]`, without a trailing slash."""
        return f"s3://{self.bucket}/{self.prefix}".rstrip("/")


class HubSite(Contract):
    """The Hugging Face Hub or a mirror of it."""

    endpoint: str = Field(default="https://huggingface.co", pattern=r"^https?://")


class Toleration(Contract):
    """As in a pod's spec."""

    key: str
    operator: Literal["Exists", "Equal"] = "Exists"
    value: str | None = None
    effect: Literal["NoSchedule", "PreferNoSchedule", "NoExecute"] | None = None


class PodShape(Contract):
    """Resources and placement of one kind of pod."""

    cpu: Quantity
    memory: Quantity
    scratch: Quantity = Field(description="size limit of the scratch volume")
    gpus: int = Field(default=0, ge=0)
    node_selector: dict[str, str] = Field(default_factory=dict)
    tolerations: tuple[Toleration, ...] = ()


class Gpu(Contract):
    """A GPU product that this site's nodes carry."""

    memory_gib: float = Field(gt=0)
    per_node: int = Field(ge=1)
    architecture: str = Field(pattern=r"^sm_[0-9]+$", description="compute capability, e.g. sm_89")
    efa: int = Field(default=0, ge=0, description="Elastic Fabric Adapters a node gives to a server over several nodes")
    driver: str | None = Field(
        default=None, pattern=r"^[0-9]+(\.[0-9]+)*$", description="of the nodes, e.g. 580.95.05; absent: not checked"
    )


class Images(Contract):
    """Image names, which are part of the keys; for GPU engines plan takes them with their digests only."""

    tasks: str = Field(description="the CPU steps")
    serving: dict[EngineKind, str] = Field(description="per engine kind, what serves it and what assemble boots in")
    multinode: str | None = Field(default=None, description="what serves a trt-engine over several nodes")
    modelopt: str | None = Field(
        default=None, description="ModelOpt's own environment: where quantize runs for llmapi and vllm"
    )


class ServingSite(Contract):
    """How serving pods bind."""

    bind_address: str = Field(default="0.0.0.0", description="address that Triton's ports bind to")  # noqa: S104
    shape: str = Field(default="serving", description="name of the serving pods' shape")
    mpi_secret: str = Field(
        default="slipway-mpi",
        pattern=r"^[a-z0-9]([a-z0-9.-]*[a-z0-9])?$",
        description="Secret with ssh-privatekey and ssh-publickey, by which the nodes of one server reach each other",
    )


class AirflowSite(Contract):
    """How the DAGs of this site run their pods."""

    deferrable: bool = False
    kubernetes_conn_id: str = "kubernetes_default"
    aws_conn_id: str = "aws_default"


class Site(Contract):
    """Everything that is a matter of place."""

    remedy = "`slipway schema --site` prints what it may hold."

    apiVersion: Literal["slipway/v1"]  # noqa: N815 - the Kubernetes resource model's own spelling
    kind: Literal["Site"]
    name: str
    kubernetes: Kubernetes = Kubernetes()
    object_store: ObjectStoreSite
    hub: HubSite = HubSite()
    images: Images
    shapes: dict[Literal["small", "transfer", "compute", "serving", "gpu"], PodShape]
    gpus: dict[str, Gpu] = Field(default_factory=dict, description="GPU products by node label; empty: none here")
    serving: ServingSite = ServingSite()
    airflow: AirflowSite = AirflowSite()
