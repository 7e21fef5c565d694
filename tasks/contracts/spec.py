"""The release spec: what a user asks for. `slipway schema` prints it as JSON Schema."""

import re
from math import ceil
from typing import Annotated, Literal, Self

from pydantic import Field, StringConstraints, field_validator, model_validator

from tasks.contracts.base import DNS_LABEL, Contract

# a DNS label holds 63 characters: room for a release id's "-" and 12 hex digits, and for "-candidate"
MAX_NAME_CHARS = 40

EngineKind = Literal["openvino", "trt-engine", "llmapi", "vllm"]
QuantizationFormat = Literal[
    "none", "int8", "int4", "int8_wo", "int4_wo", "int8_sq", "int4_awq", "w4a8_awq", "fp8", "nvfp4"
]
Metric = Literal[
    "answer_accuracy",
    "smoke_accuracy",
    "error_rate",
    "ttft_ms",
    "itl_ms",
    "latency_ms",
    "output_tokens_per_s",
    "requests_per_s",
    "goodput_per_s",
    "perplexity",
]
PER_REQUEST_METRICS: frozenset[str] = frozenset({"ttft_ms", "itl_ms", "latency_ms"})
PER_LEVEL_METRICS: frozenset[str] = PER_REQUEST_METRICS | {
    "error_rate",
    "output_tokens_per_s",
    "requests_per_s",
    "goodput_per_s",
}
"""Metrics of the load test: one value at each level of concurrency. The others are of the release as a whole."""
COMPARED_WITH_LIVE: frozenset[str] = PER_LEVEL_METRICS - {"error_rate"}

FORMATS_BY_ENGINE: dict[str, frozenset[str]] = {
    "openvino": frozenset({"none", "int8", "int4"}),
    "trt-engine": frozenset({"none", "int8_wo", "int4_wo", "int8_sq", "int4_awq", "w4a8_awq", "fp8", "nvfp4"}),
    "llmapi": frozenset({"none", "int8_wo", "int4_awq", "w4a8_awq", "fp8", "nvfp4"}),
    "vllm": frozenset({"none", "fp8", "nvfp4"}),
}
"""Which quantization formats an engine kind can serve, whatever the GPU; on which GPUs, compatibility.py says."""

CALIBRATED: frozenset[str] = frozenset({"int8_sq", "int4_awq", "w4a8_awq", "fp8", "nvfp4"})
"""Formats whose scales come from activations over texts."""

SPREAD_IN_A_GROUP: frozenset[str] = frozenset({"llmapi"})
"""Engine kinds that take several chosen GPUs beside other models: by gpu_device_ids of Triton's llmapi model. Triton's
vllm backend pins a model to one GPU only (KIND_GPU), and ranks of a trt-engine are processes of mpirun."""

MAX_DRAIN_S = 3600
"""A release that ends keeps its GPUs as long as answers are under way; beyond an hour a node's own drain gives up."""

GROUP_PATIENCE_S = 1800
"""How long a model's roll-out waits for another one of its group: what is refreshed on one schedule takes turns."""

SERVES_ADAPTERS: frozenset[str] = frozenset({"vllm"})
"""Engine kinds whose requests may choose a LoRA adapter."""

SecretRef = Annotated[str, StringConstraints(pattern=r"^[a-z0-9]([a-z0-9.-]*[a-z0-9])?/[A-Za-z0-9._-]+$")]
"""`<secret name>/<key>` of a Secret in the step's namespace."""

HubRepo = Annotated[str, StringConstraints(pattern=r"^[A-Za-z0-9._-]+/[A-Za-z0-9._-]+$")]
"""`<org>/<name>` on the Hub."""

HubFileUri = Annotated[str, StringConstraints(pattern=r"^hf://datasets/[^@\s]+/[^@\s]+@[^/\s]+/\S+$")]
"""`hf://datasets/<org>/<name>@<revision>/<file>`."""


class Source(Contract):
    """Which model, and how to be let in."""

    repo: HubRepo = Field(description="<org>/<name> on the Hub")
    revision: str = Field(default="main", min_length=1, description="branch, tag or commit; plan resolves it")
    token_secret: SecretRef | None = Field(default=None, description="Secret that holds a Hub token: <name>/<key>")


class Calibration(Contract):
    """Which texts a quantizer looks at."""

    dataset: HubFileUri = Field(description='JSONL on the Hub, one {"text": str} a line')
    samples: int = Field(default=512, ge=1, le=8192)
    max_tokens: int = Field(default=2048, ge=16, description="tokens kept of each sample")


class Quantization(Contract):
    """How weights lose precision."""

    format: QuantizationFormat
    kv_cache: Literal["none", "fp8", "int8"] = "none"
    calibration: Calibration | None = None

    @property
    def reads_texts(self) -> bool:
        """Whether a GPU engine takes scales from texts: of activations, or of the cache."""
        return self.format in CALIBRATED or self.kv_cache != "none"


class Lora(Contract):
    """A LoRA adapter that requests may choose. It is fetched with the token of the source."""

    name: str = Field(pattern=DNS_LABEL, max_length=MAX_NAME_CHARS, description="what requests call it by")
    repo: HubRepo = Field(description="<org>/<name> on the Hub")
    revision: str = Field(default="main", min_length=1, description="branch, tag or commit; plan resolves it")


class Engine(Contract):
    """What runs the model, and its limits."""

    kind: EngineKind
    gpu: str | None = Field(default=None, description="GPU product as the node's label names it, e.g. NVIDIA-L4")
    tensor_parallel: int = Field(default=1, ge=1)
    pipeline_parallel: int = Field(default=1, ge=1)
    max_batch_size: int = Field(ge=1, le=2048, description="sequences that run at once")
    max_input_tokens: int = Field(ge=1)
    max_sequence_tokens: int = Field(ge=2, description="prompt and answer together")
    options: dict[str, str | int | float | bool] = Field(default_factory=dict, description="engine's own settings")
    lora: tuple[Lora, ...] = Field(default=(), description="vllm: adapters that are served beside the model itself")

    @model_validator(mode="after")
    def _a_sequence_has_room_for_an_answer(self) -> Self:
        if self.max_sequence_tokens <= self.max_input_tokens:
            raise ValueError(
                f"max_sequence_tokens {self.max_sequence_tokens} leaves no room for an answer "
                f"after max_input_tokens {self.max_input_tokens}; raise the first or lower the second"
            )
        return self

    @model_validator(mode="after")
    def _gpu_only_where_one_is_used(self) -> Self:
        if self.kind == "openvino" and (self.gpu or self.tensor_parallel * self.pipeline_parallel > 1):
            raise ValueError("openvino runs on CPU: remove gpu, tensor_parallel and pipeline_parallel")
        if self.kind != "openvino" and not self.gpu:
            raise ValueError(f"{self.kind} needs gpu, the product it is built for and served on, e.g. NVIDIA-L4")
        return self

    @model_validator(mode="after")
    def _adapters_have_an_engine_and_a_name_each(self) -> Self:
        names = [adapter.name for adapter in self.lora]
        if names and self.kind not in SERVES_ADAPTERS:
            raise ValueError(
                f"{self.kind} serves no LoRA adapters, found {', '.join(names)}: remove lora, or choose "
                f"{', '.join(sorted(SERVES_ADAPTERS))}"
            )
        if twice := sorted({name for name in names if names.count(name) > 1}):
            raise ValueError(f"lora names {', '.join(twice)} twice; requests choose an adapter by its name")
        return self


class Replicas(Contract):
    """How many serving pods."""

    min: int = Field(default=1, ge=1)
    max: int = Field(default=1, ge=1)

    @model_validator(mode="after")
    def _ordered(self) -> Self:
        if self.max < self.min:
            raise ValueError(f"max {self.max} is below min {self.min}")
        return self


class Serving(Contract):
    """Where and how the model is served."""

    image: str | None = Field(
        default=None, description="serving image on one node; the site's own for this engine when absent"
    )
    replicas: Replicas = Replicas()
    exposure: Literal["cluster", "ingress", "load-balancer"] = "cluster"
    ready_timeout_s: int = Field(default=600, ge=10, description="how long a candidate may take to become ready")
    drain_s: int | None = Field(
        default=None,
        ge=1,
        le=MAX_DRAIN_S,
        description="how long answers under way may take when their server ends; "
        "gate.benchmark.request_timeout_s when absent",
    )
    group: str | None = Field(
        default=None,
        pattern=DNS_LABEL,
        max_length=MAX_NAME_CHARS,
        description="server that this model shares with the others of its group; when absent, one of its own",
    )
    gpus: tuple[Annotated[int, Field(ge=0)], ...] = Field(
        default=(), description="in a group: which GPUs of the server's pod are this model's, counted from 0"
    )

    @model_validator(mode="after")
    def _gpus_are_chosen_in_a_group_only(self) -> Self:
        if self.gpus and self.group is None:
            raise ValueError("gpus divides a server between models; it needs group. Remove it, or name the group")
        if len(set(self.gpus)) != len(self.gpus):
            raise ValueError(f"gpus {list(self.gpus)} names a GPU twice")
        return self


class SmokeQuestion(Contract):
    """A question whose answer is known. The first one is also what the boot test asks."""

    prompt: str = Field(min_length=1)
    answer: str = Field(min_length=1, description="what the stripped answer must match")
    match: Literal["exact", "contains", "regex"] = "exact"
    max_tokens: int = Field(default=32, ge=1)
    lora: str | None = Field(default=None, description="adapter of engine.lora that answers; when absent, the model")

    @model_validator(mode="after")
    def _regex_compiles(self) -> Self:
        if self.match == "regex":
            try:
                re.compile(self.answer)
            except re.error as error:
                raise ValueError(f"answer {self.answer!r} is no regular expression: {error}") from error
        return self

    def accepts(self, text: str) -> bool:
        """Whether `text`, stripped, is a right answer."""
        found = text.strip()
        match self.match:
            case "exact":
                return found == self.answer
            case "contains":
                return self.answer in found
            case "regex":
                return re.search(self.answer, found) is not None


class Quality(Contract):
    """Questions with known answers that the candidate is asked through its Service."""

    dataset: HubFileUri = Field(description='JSONL on the Hub, one {"prompt": str, "answer": str} a line')
    max_tokens: int = Field(default=32, ge=1)
    perplexity: HubFileUri | None = Field(
        default=None, description='JSONL, one {"text": str} a line: perplexity of the source and of what quantize made'
    )


class Goodput(Contract):
    """The service level a request must meet to count as good. Absent limits do not judge."""

    ttft_ms: float | None = Field(default=None, gt=0)
    itl_ms: float | None = Field(default=None, gt=0)
    latency_ms: float | None = Field(default=None, gt=0)


class Benchmark(Contract):
    """The load that candidate and live release are measured under."""

    concurrency: tuple[Annotated[int, Field(ge=1, le=1024)], ...] = Field(default=(1, 4, 8), min_length=1)
    requests: int = Field(default=64, ge=1, description="measured requests per level of concurrency")
    warmup: int = Field(default=8, ge=0, description="requests per level that are sent and not counted")
    max_tokens: int = Field(default=32, ge=1)
    request_timeout_s: float = Field(default=30.0, gt=0)
    goodput: Goodput = Goodput()


class Expectation(Contract):
    """One line of the gate: a metric and exactly one limit.

    An absolute limit is `at_most` or `at_least`. A relative one, `at_most_ratio` or `at_least_ratio`, divides by the
    same metric of `of`: the live release under the same load, or the unquantized source. Of per-request metrics a
    `quantile` is judged, at each level of concurrency or at the one that `concurrency` names.
    """

    metric: Metric
    quantile: float | None = Field(default=None, gt=0, lt=1)
    concurrency: int | None = Field(default=None, ge=1)
    at_most: float | None = None
    at_least: float | None = None
    at_most_ratio: float | None = Field(default=None, gt=0)
    at_least_ratio: float | None = Field(default=None, gt=0)
    of: Literal["live", "source"] | None = None
    min_count: int = Field(default=1, ge=1, description="fewer samples make the line inconclusive")

    @model_validator(mode="after")
    def _one_limit(self) -> Self:
        limits = {
            name: value
            for name in ("at_most", "at_least", "at_most_ratio", "at_least_ratio")
            if (value := getattr(self, name)) is not None
        }
        if len(limits) != 1:
            raise ValueError(
                f"{self.metric}: give exactly one of at_most, at_least, at_most_ratio, at_least_ratio, "
                f"found {sorted(limits) or 'none'}"
            )
        relative = next(iter(limits)).endswith("_ratio")
        if relative != (self.of is not None):
            raise ValueError(f"{self.metric}: `of` (live or source) goes with a ratio and only with a ratio")
        if self.of == "source" and self.metric != "perplexity":
            raise ValueError(f"{self.metric} is not measured of the source; only perplexity is")
        if self.of == "live" and self.metric not in COMPARED_WITH_LIVE:
            raise ValueError(f"{self.metric} is not compared with live; {', '.join(sorted(COMPARED_WITH_LIVE))} are")
        return self

    @model_validator(mode="after")
    def _quantile_of_requests_only(self) -> Self:
        if (self.metric in PER_REQUEST_METRICS) != (self.quantile is not None):
            raise ValueError(
                f"{self.metric}: quantile belongs to {', '.join(sorted(PER_REQUEST_METRICS))} and to no other metric"
            )
        if self.concurrency is not None and self.metric not in PER_LEVEL_METRICS:
            raise ValueError(f"{self.metric} is measured once per release: remove concurrency")
        return self

    @property
    def limit(self) -> float:
        """The one limit that is set."""
        return next(v for v in (self.at_most, self.at_least, self.at_most_ratio, self.at_least_ratio) if v is not None)

    @property
    def is_upper(self) -> bool:
        """Whether the limit is one that must not be exceeded."""
        return self.at_most is not None or self.at_most_ratio is not None


class Gate(Contract):
    """What a candidate must prove. Absent, thin or non-finite data is never a pass."""

    smoke: tuple[SmokeQuestion, ...] = Field(min_length=1)
    quality: Quality | None = None
    benchmark: Benchmark = Benchmark()
    expect: tuple[Expectation, ...] = Field(min_length=1)

    @model_validator(mode="after")
    def _expectations_have_their_data(self) -> Self:
        for line in self.expect:
            if line.metric == "answer_accuracy" and self.quality is None:
                raise ValueError("answer_accuracy needs gate.quality.dataset")
            if line.metric == "perplexity" and (self.quality is None or self.quality.perplexity is None):
                raise ValueError("perplexity needs gate.quality.perplexity")
            if line.concurrency is not None and line.concurrency not in self.benchmark.concurrency:
                raise ValueError(
                    f"{line.metric} asks for concurrency {line.concurrency}, "
                    f"the benchmark runs {list(self.benchmark.concurrency)}"
                )
        return self


class Rollout(Contract):
    """How traffic moves, and what stays warm."""

    strategy: Literal["blue-green", "canary"] = "blue-green"
    steps: tuple[Annotated[int, Field(ge=1, le=99)], ...] = (5, 25, 50)
    bake_s: int = Field(default=0, ge=0, description="how long a promoted release is watched before promote ends")
    keep: int = Field(default=2, ge=1, description="releases that stay deployed, the live one included")
    approval: Literal["none", "human"] = "none"


class ReleaseSpec(Contract):
    """One model, from a revision to a Service."""

    remedy = "`slipway schema` prints what it may hold."

    apiVersion: Literal["slipway/v1"]  # noqa: N815 - the Kubernetes resource model's own spelling
    kind: Literal["Release"]
    name: str = Field(pattern=DNS_LABEL, max_length=MAX_NAME_CHARS, description="Service name and Triton model name")
    source: Source
    quantization: Quantization
    engine: Engine
    serving: Serving = Serving()
    gate: Gate
    rollout: Rollout = Rollout()
    schedule: str | None = Field(default=None, description='cron expression or preset such as "@daily"')

    @property
    def drain_s(self) -> int:
        """How long answers under way may take when their server ends: as asked, else what the benchmark gives each."""
        return self.serving.drain_s or min(MAX_DRAIN_S, ceil(self.gate.benchmark.request_timeout_s))

    @field_validator("name")
    @classmethod
    def _name_is_not_a_candidates(cls, name: str) -> str:
        if name.endswith("-candidate"):
            raise ValueError("a name may not end in -candidate: that Service belongs to the model's roll-out")
        return name

    @model_validator(mode="after")
    def _a_group_has_room_for_the_model(self) -> Self:
        if self.serving.group is None or self.engine.gpu is None:
            return self
        ranks = self.engine.tensor_parallel * self.engine.pipeline_parallel
        if ranks > 1 and self.engine.kind not in SPREAD_IN_A_GROUP:
            raise ValueError(
                f"in a group {self.engine.kind} runs on one GPU, found {ranks}: its ranks own the whole server. "
                f"Remove serving.group, or choose {', '.join(sorted(SPREAD_IN_A_GROUP))}"
            )
        if len(self.serving.gpus) != ranks:
            raise ValueError(
                f"serving.gpus names {len(self.serving.gpus)} GPUs, tensor_parallel x pipeline_parallel is {ranks}; "
                "in a group each rank is pinned to one"
            )
        return self

    @model_validator(mode="after")
    def _questions_choose_adapters_that_are_there(self) -> Self:
        there = {adapter.name for adapter in self.engine.lora}
        for question in self.gate.smoke:
            if question.lora is not None and question.lora not in there:
                raise ValueError(
                    f"gate.smoke asks the adapter {question.lora}; engine.lora has {', '.join(sorted(there)) or 'none'}"
                )
        return self

    @model_validator(mode="after")
    def _engine_serves_the_format(self) -> Self:
        allowed = FORMATS_BY_ENGINE[self.engine.kind]
        if self.quantization.format not in allowed:
            raise ValueError(
                f"engine {self.engine.kind} cannot serve format {self.quantization.format}; "
                f"it serves {', '.join(sorted(allowed))}"
            )
        return self
