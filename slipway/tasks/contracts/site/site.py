"""The site: where a release runs. Everything that differs between a laptop and a cluster is in this file."""

import ipaddress
import re
from collections.abc import Mapping
from typing import Annotated, Literal, Self
from urllib.parse import quote, urlsplit

from pydantic import AfterValidator, Field, StringConstraints, field_validator, model_validator

from slipway.tasks.contracts.base import DNS_LABEL, UserDocument, sha256_of
from slipway.tasks.contracts.engine.engine_kinds import EngineKind
from slipway.tasks.contracts.engine.scaling import Scaler
from slipway.tasks.contracts.kubernetes_text import (
    ImageName,
    LabelKey,
    LabelValue,
    Namespace,
    NonEmptyLabelValue,
    ObjectName,
)
from slipway.tasks.contracts.notifications import Notifications
from slipway.tasks.contracts.site.authentication import Authentication
from slipway.tasks.contracts.site.exposure import LoadBalancer, Routes
from slipway.tasks.contracts.site.gpu_nodes import GpuNodes, Karpenter, NodeFacts, problems
from slipway.tasks.contracts.site.network_check import NetworkFloor
from slipway.tasks.contracts.site.retention import RetentionPolicy
from slipway.tasks.contracts.site.signing import Signing
from slipway.tasks.contracts.site.telemetry import Telemetry
from slipway.tasks.contracts.spec_fields import MAX_GPUS_OF_A_POD, MAX_NAME_CHARS, SecretRef
from slipway.tasks.contracts.step_names import Step

POD_IP = "$(POD_IP)"
"""Kubernetes replaces it with the pod's own address: the one expansion that a site may use."""
MAX_ENTRIES = 100

SUFFIXES: dict[str, float] = {
    **{unit: 1000.0 ** (power - 3) for power, unit in enumerate(("n", "u", "m"))},
    **{unit: 1024 ** (power + 1) for power, unit in enumerate(("Ki", "Mi", "Gi", "Ti", "Pi", "Ei"))},
    **{unit: 1000 ** (power + 1) for power, unit in enumerate(("k", "M", "G", "T", "P", "E"))},
}


def quantity(text: str) -> float:
    """The number that a quantity of Kubernetes means: bytes for memory and storage."""
    number = text.rstrip("numKMGTPEki")
    return float(number) * SUFFIXES.get(text[len(number) :], 1)


def _positive(text: str) -> str:
    if quantity(text) <= 0:
        raise ValueError("a quantity is above 0")
    return text


Cpu = Annotated[
    str, StringConstraints(pattern=r"^[0-9]{1,9}(\.[0-9]{1,3})?m?$", max_length=16), AfterValidator(_positive)
]
"""A Kubernetes quantity of CPU, such as `500m` or `2`."""
Bytes = Annotated[
    str,
    StringConstraints(pattern=r"^[0-9]{1,12}(\.[0-9]{1,3})?(Ki|Mi|Gi|Ti|k|M|G|T)?$", max_length=16),
    AfterValidator(_positive),
]
"""A Kubernetes quantity of memory or storage, such as `8Gi`."""


def _network(text: str) -> str:
    """Check the range and write it the one way that Kubernetes accepts: without host bits."""
    if "%" in text:
        raise ValueError("an address range has no zone")
    return str(ipaddress.ip_network(text, strict=False))


Cidr = Annotated[str, AfterValidator(_network)]
"""An IPv4 or IPv6 address range, such as `10.20.0.0/16`; a bare address is a range of one."""

NETWORKS = Field(
    default=(),
    max_length=MAX_ENTRIES,
    description="address ranges that the endpoint's host resolves to; needed where its address is private or its port "
    "is not 443, which the default network policies block. `slipway setup` creates a policy for them",
)


HOST = re.compile(r"[A-Za-z0-9]([A-Za-z0-9-]*[A-Za-z0-9])?(\.[A-Za-z0-9]([A-Za-z0-9-]*[A-Za-z0-9])?)*\.?")
"""A name that DNS and every HTTP client accept."""


def _endpoint(text: str) -> str:
    """Check what a pattern cannot: that there is a valid host and port, and nothing that belongs elsewhere."""
    parts = urlsplit(text)
    if not HOST.fullmatch(parts.hostname or "") and not _is_address(parts.hostname or ""):
        raise ValueError("an endpoint needs a valid host, such as https://huggingface.co")
    if "@" in parts.netloc or parts.query or parts.fragment:
        raise ValueError("an endpoint has no user, password, query or fragment; credentials belong in a Secret")
    if parts.port == 0:
        raise ValueError("an endpoint's port is 1 to 65535")
    return text


def _is_address(host: str) -> bool:
    try:
        ipaddress.ip_address(host)
    except ValueError:
        return False
    return True


Endpoint = Annotated[str, StringConstraints(pattern=r"^https?://[!-~]+$", max_length=500), AfterValidator(_endpoint)]


def endpoint_port(endpoint: str) -> int:
    """The TCP port of an http or https address."""
    parts = urlsplit(endpoint)
    return parts.port or (80 if parts.scheme == "http" else 443)


def _ranges(endpoint: str | None, networks: tuple[str, ...]) -> tuple[str, ...]:
    """The ranges that the site names, or the endpoint's host where that is an IP address."""
    if networks or endpoint is None:
        return networks
    try:
        return (_network(urlsplit(endpoint).hostname or ""),)
    except ValueError:
        return ()


class Kubernetes(UserDocument):
    """The cluster, and the two namespaces."""

    context: str | None = Field(default=None, description="kubeconfig context; the current one when absent")
    pipeline_namespace: Namespace = "slipway"
    serving_namespace: Namespace = "slipway-serving"
    failed_pods_kept_h: int = Field(
        default=48, ge=0, le=8760, description="hours that the pod of a failed step stays, so that its log can be read"
    )


class TransferSite(UserDocument):
    """How fast files move between the object store and a pod."""

    connections: int = Field(default=16, ge=1, le=256, description="parts that one process reads or writes at a time")
    bytes_per_s: int | None = Field(
        default=None, ge=2**16, le=10**12, description="limit of one process; absent: as fast as possible"
    )


ENDPOINT_VARIABLES = ("AWS_ENDPOINT_URL_S3", "AWS_ENDPOINT_URL")
"""Other stores, as boto3 takes them (docs.aws.amazon.com/sdkref/latest/guide/feature-ss-endpoints.html)."""


class ObjectStoreSite(UserDocument):
    """Where artifacts, releases and channels are stored."""

    bucket: str = Field(pattern=r"^[a-z0-9][a-z0-9.-]{1,61}[a-z0-9]$")
    prefix: str = Field(default="", pattern=r"^([A-Za-z0-9._-]+(/[A-Za-z0-9._-]+)*)?$", max_length=500)
    endpoint: Endpoint | None = Field(default=None, description="AWS S3 when absent")
    region: str = Field(default="us-east-1", pattern=r"^[a-z0-9-]+$", max_length=63)
    credentials_secret: ObjectName | None = Field(
        default=None,
        description="Secret with AWS_ACCESS_KEY_ID and AWS_SECRET_ACCESS_KEY; absent: the pod's cloud identity",
    )
    networks: tuple[Cidr, ...] = NETWORKS
    transfer: TransferSite = TransferSite()
    console: str | None = Field(
        default=None,
        pattern=r"^https?://[!-~]+$",
        max_length=500,
        description="page on which a person opens an object, such as https://console.example/browser/{bucket}/{key}; "
        "absent: a report is linked in Airflow, and other links are signed and expire after link_h",
    )
    link_h: int = Field(
        default=72, ge=1, le=168, description="hours for which a signed link works; S3 signs for a week"
    )

    @field_validator("console")
    @classmethod
    def _console_shows_any_object(cls, pattern: str | None) -> str | None:
        if pattern is not None and (
            "{key}" not in pattern or set("{}") & set(pattern.replace("{key}", "").replace("{bucket}", ""))
        ):
            raise ValueError("a console's address has {key} and may have {bucket}, and no other braces")
        return pattern

    @property
    def link_s(self) -> int:
        """Seconds for which a signed link works."""
        return 3600 * self.link_h

    def addressing_style(self, environment: Mapping[str, str]) -> str:
        """How botocore is to name a bucket: by the host of its region in Amazon S3, by a path in another store.

        For a host that it chooses itself it signs links that redirect while a bucket is new (signers.py,
        _should_use_global_endpoint; docs.aws.amazon.com/AmazonS3/latest/userguide/Redirects.html).
        """
        elsewhere = self.endpoint or any(environment.get(name) for name in ENDPOINT_VARIABLES)
        return "path" if elsewhere else "virtual"

    def page_of(self, uri: str) -> str | None:
        """The console's page of an object; None where the site names no console."""
        if self.console is None:
            return None
        bucket, _, key = uri.removeprefix("s3://").partition("/")
        return self.console.replace("{bucket}", quote(bucket)).replace("{key}", quote(key))

    @property
    def root(self) -> str:
        """`s3://bucket[/prefix]`, without a trailing slash."""
        return f"s3://{self.bucket}/{self.prefix}".rstrip("/")

    @property
    def ranges(self) -> tuple[str, ...]:
        """Address ranges that need a network policy of their own; none where the base policies suffice."""
        return _ranges(self.endpoint, self.networks)


class HubSite(UserDocument):
    """The Hugging Face Hub or a mirror of it."""

    endpoint: Endpoint = "https://huggingface.co"
    networks: tuple[Cidr, ...] = NETWORKS

    @property
    def ranges(self) -> tuple[str, ...]:
        """Address ranges that need a network policy of their own; none where the base policies suffice."""
        return _ranges(self.endpoint, self.networks)


MLFLOW_TOKEN_VARIABLE = "MLFLOW_TRACKING_TOKEN"  # noqa: S105 - the variable's name
"""Environment variable with the token of mlflow.token_secret, as MLflow's own clients name it."""


class MlflowSite(UserDocument):
    """MLflow's tracking server, whose registry may name models for source.uri."""

    endpoint: Endpoint
    networks: tuple[Cidr, ...] = NETWORKS
    token_secret: SecretRef | None = Field(
        default=None, description="Secret that holds a bearer token of the server: <name>/<key>"
    )

    @property
    def ranges(self) -> tuple[str, ...]:
        """Address ranges that need a network policy of their own; none where the base policies suffice."""
        return _ranges(self.endpoint, self.networks)


class Toleration(UserDocument):
    """As in a pod's spec."""

    key: LabelKey
    operator: Literal["Exists", "Equal"] = "Exists"
    value: LabelValue | None = None
    effect: Literal["NoSchedule", "PreferNoSchedule", "NoExecute"] | None = None

    @model_validator(mode="after")
    def _a_value_is_compared(self) -> Self:
        if self.value and self.operator == "Exists":
            raise ValueError("operator Exists allows no value in Kubernetes; choose Equal, or remove the value")
        return self


class PodShape(UserDocument):
    """Resources and placement of one kind of pod."""

    cpu: Cpu
    memory: Bytes
    scratch: Bytes = Field(description="size limit of the scratch volume")
    gpus: int = Field(default=0, ge=0, le=MAX_GPUS_OF_A_POD)
    node_selector: dict[LabelKey, LabelValue] = Field(default_factory=dict, max_length=MAX_ENTRIES)
    tolerations: tuple[Toleration, ...] = Field(default=(), max_length=MAX_ENTRIES)


class Gpu(UserDocument):
    """A GPU product that this site's nodes have."""

    memory_gib: float = Field(gt=0, le=4096)
    per_node: int = Field(ge=1, le=MAX_GPUS_OF_A_POD)
    architecture: str = Field(pattern=r"^sm_[0-9]{2,4}$", description="compute capability, e.g. sm_89")
    efa: int = Field(
        default=0, ge=0, le=64, description="Elastic Fabric Adapters a node gives to a server over several nodes"
    )
    driver: str | None = Field(
        default=None,
        pattern=r"^[0-9]{1,6}(\.[0-9]{1,6}){0,4}$",
        description="the nodes' driver, e.g. 580.95.05; absent: not checked",
    )
    network: NetworkFloor | None = Field(
        default=None, description="what the network between nodes must be able to do; absent: it is not measured"
    )
    nodes: GpuNodes | None = Field(
        default=None, description="instances that Karpenter starts for pods with this GPU; absent: the nodes are there"
    )


class Images(UserDocument):
    """Image names, which are part of the keys; for GPU engines plan requires their digests."""

    tasks: ImageName = Field(description="image of the CPU steps")
    serving: dict[EngineKind, ImageName] = Field(
        description="per engine kind, the image that serves it and in which assemble boots it"
    )
    multinode: ImageName | None = Field(
        default=None, description="image that serves trt-engine and llmapi over several nodes"
    )
    front: ImageName = Field(
        default="envoyproxy/envoy:distroless-v1.40.0",
        description="image of Envoy, which accepts the connections of every serving pod; part of no key",
    )
    harness: ImageName | None = Field(
        default=None, description="image with lm-evaluation-harness, for specs with gate.harness; part of no key"
    )
    modelopt: ImageName | None = Field(
        default=None, description="image with ModelOpt, in which quantize runs for llmapi and vllm"
    )


Origin = Annotated[
    str,
    StringConstraints(pattern=r"^(\*|https?://[A-Za-z0-9.-]{1,253}(:[0-9]{1,5})?)$"),
]
"""Scheme, host and port as a browser writes them, or any."""


class ServingSite(UserDocument):
    """Settings of serving pods."""

    bind_address: str = Field(
        default="0.0.0.0",  # noqa: S104
        pattern=r"^(\$\(POD_IP\)|[0-9A-Fa-f.:]{2,45})$",
        description="IP address that Triton's ports bind to, or $(POD_IP), which becomes the pod's own",
    )
    shape: str = Field(default="serving", description="name of the serving pods' shape")
    spot: bool = Field(
        default=False, description="whether servers may run on spot nodes, which AWS takes away within two minutes"
    )
    mpi_secret: ObjectName = Field(
        default="slipway-mpi",
        description="Secret with ssh-privatekey and ssh-publickey, with which the nodes of one server connect",
    )

    authentication: Literal["none"] | Authentication = Field(
        default="none",
        description="the API keys that clients need; none: whoever reaches a model may use it",
    )
    browser_origins: list[Origin] = Field(
        default=[],
        max_length=32,
        description="origins whose pages may use OpenAI's API from a browser, such as https://ui.example; * for all",
    )
    scaler: Scaler | None = Field(
        default=None, description="what runs serving.autoscale of specs; absent: specs that ask for it are refused"
    )
    routes: Routes | None = Field(
        default=None, description="what serving.exposure ingress makes; absent: specs that ask for it are refused"
    )
    load_balancer: LoadBalancer | None = Field(
        default=None,
        description="settings of load balancers on AWS; the cluster's defaults when absent",
    )

    @field_validator("bind_address")
    @classmethod
    def _is_an_address(cls, text: str) -> str:
        if text != POD_IP:
            ipaddress.ip_address(text)
        return text


class StartBudget(UserDocument):
    """How long pods may take to start, by phase."""

    schedule_min: float = Field(gt=0, le=1440, description="minutes until a node has the pod, nodes from zero included")
    pull_min: float = Field(gt=0, le=1440, description="minutes for all its images and volumes together")

    @property
    def schedule_s(self) -> int:
        """Seconds of the schedule phase."""
        return int(60 * self.schedule_min)

    @property
    def pull_s(self) -> int:
        """Seconds of the pull phase."""
        return int(60 * self.pull_min)


class Budgets(UserDocument):
    """How long each phase of a pod may take. What runs out of time says which phase it was."""

    cpu: StartBudget = Field(
        default=StartBudget(schedule_min=10, pull_min=10), description="pods without GPUs, of steps and servers"
    )
    gpu: StartBudget = Field(
        # a node from zero takes up to 10 minutes, an image of 20 GB as long as that (apple/axlearn#362, airflow#49784)
        default=StartBudget(schedule_min=30, pull_min=30),
        description="pods with GPUs",
    )
    run_min: dict[Step, Annotated[float, Field(gt=0, le=43200)]] = Field(
        default_factory=dict,
        max_length=MAX_ENTRIES,
        description="minutes that a step may run, by its name; others have the limits in docs/gpu-nodes.md",
    )

    def of(self, *, gpus: bool) -> StartBudget:
        """The budget of a pod with or without GPUs."""
        return self.gpu if gpus else self.cpu


class Prices(UserDocument):
    """What a pod costs, from which plan says what a release will cost."""

    currency: str = Field(default="USD", pattern=r"^[A-Z]{3}$", description="ISO 4217")
    cpu_hour: float = Field(ge=0, le=1e6, description="of one CPU of a pod without GPUs, its memory included")
    gpu_hour: dict[NonEmptyLabelValue, Annotated[float, Field(ge=0, le=1e6)]] = Field(
        default_factory=dict,
        max_length=MAX_ENTRIES,
        description="of one GPU, by product: the node's price divided by its GPUs",
    )


class AirflowSite(UserDocument):
    """How the DAGs of this site run their pods."""

    deferrable: bool = False
    kubernetes_conn_id: str = "kubernetes_default"
    aws_conn_id: str = "aws_default"


class Site(UserDocument):
    """Everything that depends on where releases run."""

    if_invalid = "`slipway schema --site` prints its fields."

    apiVersion: Literal["slipway/v1"]  # noqa: N815 - the Kubernetes resource model's own spelling
    kind: Literal["Site"]
    name: str
    kubernetes: Kubernetes = Kubernetes()
    object_store: ObjectStoreSite
    hub: HubSite = HubSite()
    mlflow: MlflowSite | None = Field(
        default=None,
        exclude_if=lambda mlflow: mlflow is None,  # pods of an older version read site files without it
        description="whose registered models specs may release",
    )
    images: Images
    shapes: dict[Annotated[str, StringConstraints(pattern=DNS_LABEL, max_length=MAX_NAME_CHARS)], PodShape] = Field(
        max_length=MAX_ENTRIES,
        description="small, transfer, compute, serving and gpu of the steps and servers, and others of servers on CPU",
    )
    gpus: dict[NonEmptyLabelValue, Gpu] = Field(
        default_factory=dict, max_length=MAX_ENTRIES, description="GPU products by node label; empty: no GPUs"
    )
    nodes: Karpenter | None = Field(
        default=None, description="Karpenter on AWS, which starts the nodes of gpus.<product>.nodes"
    )
    serving: ServingSite = ServingSite()
    airflow: AirflowSite = AirflowSite()
    telemetry: Telemetry = Telemetry()
    budgets: Budgets = Field(default=Budgets(), description="time limits of pods, by phase")
    prices: Prices | None = Field(default=None, description="absent: plan says no price")
    notifications: Notifications = Field(
        default=Notifications(), description="who is told about promotions, refusals, rollbacks, approvals and drills"
    )
    retention: RetentionPolicy | None = Field(
        default=None, description="what the object store keeps; absent: everything, and nothing is ever deleted"
    )
    signing: Signing | None = Field(
        default=None, description="who signs releases, and whose signatures are accepted; absent: neither"
    )

    @property
    def digest(self) -> str:
        """Hex sha256 of what the file states; comments, order and the defaults of a version do not change it."""
        return sha256_of(self.model_dump(mode="json", exclude_unset=True))

    @model_validator(mode="after")
    def _prices_are_of_known_gpus(self) -> Self:
        if self.prices and (unknown := sorted(set(self.prices.gpu_hour) - set(self.gpus))):
            raise ValueError(f"prices.gpu_hour names {', '.join(unknown)}, which is not in gpus")
        return self

    @model_validator(mode="after")
    def _nodes_would_be_started(self) -> Self:
        shape = self.shapes.get("gpu")
        for product, gpu in self.gpus.items():
            if gpu.nodes is None:
                continue
            if self.nodes is None or shape is None:
                raise ValueError(
                    f"gpus.{product}.nodes needs the field nodes, which says how Karpenter starts them, and shapes.gpu"
                )
            if not any(each.key == "nvidia.com/gpu" for each in shape.tolerations):
                raise ValueError("shapes.gpu.tolerations: nodes of Karpenter have the taint nvidia.com/gpu:NoSchedule")
            facts = NodeFacts(
                product=product,
                per_node=gpu.per_node,
                efa=gpu.efa,
                cpu_m=1000 * quantity(shape.cpu),
                memory_mib=quantity(shape.memory) / 2**20,
                scratch_gb=quantity(shape.scratch) / 1e9,
            )
            if found := list(problems(gpu.nodes, facts)):
                raise ValueError(f"gpus.{product}.nodes: {'; '.join(found)}")
        return self
