"""The release spec: what a user requests. `slipway schema` prints it as JSON Schema."""

from collections.abc import Collection
from math import ceil
from typing import Annotated, Literal, Self

from pydantic import Field, field_validator, model_validator

from tasks.contracts.base import DNS_LABEL, Written
from tasks.contracts.engine_kinds import (
    ENGINE_KINDS,
    KEPT_FORMATS,
    EngineKind,
    EngineTraits,
    QuantizationFormat,
    kinds_with,
    kinds_with_adapters,
)
from tasks.contracts.expert_parallel import expert_problem
from tasks.contracts.gate_spec import Gate
from tasks.contracts.kubernetes_text import ImageName, NonEmptyLabelValue
from tasks.contracts.sampling import SamplingParameters
from tasks.contracts.scaling import Autoscale
from tasks.contracts.schedule import MAX_SCHEDULE_CHARS, check_schedule
from tasks.contracts.spec_fields import (
    MAX_ADAPTERS,
    MAX_DRAIN_S,
    MAX_GPUS_OF_A_POD,
    MAX_KEPT,
    MAX_NAME_CHARS,
    MAX_OPTIONS,
    MAX_RANKS,
    MAX_REPLICAS,
    MAX_STEPS,
    MAX_TOKENS,
    MAX_WAIT_S,
    HubFileUri,
    HubRepo,
    OptionName,
    OptionNumber,
    Revision,
    SecretRef,
    TemplateArguments,
    Tokens,
)
from tasks.contracts.speculation import Drafted, Speculative

CALIBRATED: frozenset[str] = frozenset({"int8_sq", "int4_awq", "w4a8_awq", "fp8", "nvfp4"})
"""Formats whose scales come from activations on calibration texts."""


class Source(Written):
    """Which model to fetch, and the credentials for it."""

    repo: HubRepo = Field(description="<org>/<name> on the Hub")
    revision: Revision = Field(default="main", description="branch, tag or commit; plan resolves it")
    token_secret: SecretRef | None = Field(default=None, description="Secret that holds a Hub token: <name>/<key>")


class Calibration(Written):
    """Texts for calibrating quantization."""

    dataset: HubFileUri = Field(description='JSONL on the Hub, one {"text": str} per line')
    samples: int = Field(default=512, ge=1, le=8192)
    max_tokens: int = Field(default=2048, ge=16, le=MAX_TOKENS, description="tokens kept of each sample")


class Quantization(Written):
    """How weights and KV cache are quantized."""

    format: QuantizationFormat
    kv_cache: Literal["none", "fp8", "int8"] = "none"
    calibration: Calibration | None = None

    def reads_texts(self, traits: EngineTraits) -> bool:
        """Whether an engine of these traits derives scales from texts, for activations or for the cache."""
        uncalibrated = traits.uncalibrated_cache and self.format in KEPT_FORMATS
        return self.format in CALIBRATED or (self.kv_cache != "none" and not uncalibrated)


class Lora(Written):
    """A LoRA adapter that requests may choose. It is fetched with the source's token."""

    name: str = Field(pattern=DNS_LABEL, max_length=MAX_NAME_CHARS, description="name that requests use")
    repo: HubRepo = Field(description="<org>/<name> on the Hub")
    revision: Revision = Field(default="main", description="branch, tag or commit; plan resolves it")


class Engine(Written):
    """The engine that runs the model, and its limits."""

    kind: EngineKind
    gpu: NonEmptyLabelValue | None = Field(
        default=None, description="GPU product as the node's label names it, e.g. NVIDIA-L4"
    )
    tensor_parallel: int = Field(default=1, ge=1, le=MAX_RANKS)
    pipeline_parallel: int = Field(default=1, ge=1, le=MAX_RANKS)
    expert_parallel: int = Field(
        default=1,
        ge=1,
        le=MAX_RANKS,
        description="mixtures of experts: ranks that share out the experts, a divisor of tensor_parallel",
    )
    attention_dp: bool = Field(
        default=False,
        description="mixtures of experts on llmapi: each rank computes the attention of its own requests",
    )
    max_batch_size: int = Field(ge=1, le=2048, description="sequences that run at once")
    max_input_tokens: Tokens
    max_sequence_tokens: int = Field(ge=2, le=MAX_TOKENS, description="prompt and answer together")
    options: dict[OptionName, str | OptionNumber | float | bool] = Field(
        default_factory=dict, max_length=MAX_OPTIONS, description="settings of this engine kind"
    )
    chat_template_kwargs: TemplateArguments = Field(
        default_factory=dict,
        description="arguments of the chat template for every request, e.g. enable_thinking: false",
    )
    lora: tuple[Lora, ...] = Field(
        default=(), max_length=MAX_ADAPTERS, description="adapters that are served beside the model itself"
    )

    speculative: Speculative | None = Field(
        default=None, description="llmapi and vllm: how tokens are guessed ahead; not at all when absent"
    )

    @property
    def traits(self) -> EngineTraits:
        """What is true of every engine of this kind."""
        return ENGINE_KINDS[self.kind]

    @property
    def ranks(self) -> int:
        """Processes that one replica is split over, each on a GPU of its own; 1 on CPU."""
        return self.tensor_parallel * self.pipeline_parallel

    @property
    def answer_room(self) -> int:
        """Tokens that are left for an answer after the longest prompt."""
        return self.max_sequence_tokens - self.max_input_tokens

    @property
    def draft(self) -> Drafted | None:
        """The model of its own that guesses tokens; None: none does."""
        return self.speculative if isinstance(self.speculative, Drafted) else None

    @property
    def tokens_of_a_batch(self) -> int:
        """Tokens of a step in which every sequence generates: its next one, and those that were guessed."""
        guessed = self.speculative.num_tokens if self.speculative else 0
        return self.max_batch_size * (1 + guessed)

    @model_validator(mode="after")
    def _the_kind_can_guess_tokens_so(self) -> Self:
        if self.speculative is not None and self.speculative.method not in self.traits.speculative:
            method = self.speculative.method
            others = [kind for kind, traits in ENGINE_KINDS.items() if method in traits.speculative]
            raise ValueError(
                f"{self.kind} cannot guess tokens by {method}: remove speculative, choose "
                f"{', '.join(sorted(self.traits.speculative)) or 'no method'}, or engine kind {', '.join(others)}"
            )
        return self

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
        if not self.traits.on_gpu and (self.gpu or self.ranks > 1):
            raise ValueError(f"{self.kind} runs on CPU: remove gpu, tensor_parallel and pipeline_parallel")
        if self.traits.on_gpu and not self.gpu:
            raise ValueError(f"{self.kind} needs gpu, the product it is built for and served on, e.g. NVIDIA-L4")
        return self

    @model_validator(mode="after")
    def _arguments_have_a_template(self) -> Self:
        self.check_template_arguments("chat_template_kwargs", self.chat_template_kwargs)
        return self

    def sampling_problem(self, parameters: SamplingParameters) -> str:
        """Which parameters this kind cannot obey, and what to do; empty if it can."""
        unsupported = sorted(parameters.requested().keys() - self.traits.sampling)
        if not unsupported:
            return ""
        others = [kind for kind, traits in ENGINE_KINDS.items() if traits.sampling.issuperset(unsupported)]
        return (
            f"{self.kind} does not obey {', '.join(unsupported)}: remove it, or choose engine kind {', '.join(others)}"
        )

    def check_template_arguments(self, field: str, arguments: Collection[object]) -> None:
        """Refuse arguments, or messages, that no chat template would get.

        Raises:
            ValueError: serving applies no template.
        """
        if arguments and self.options.get("chat_template") == "none":
            raise ValueError(f"{field} has no effect with engine.options.chat_template none: remove one of them")

    @model_validator(mode="after")
    def _experts_are_shared_out_as_the_kind_can(self) -> Self:
        if problem := expert_problem(
            self.kind, self.tensor_parallel, experts=self.expert_parallel, attention_dp=self.attention_dp
        ):
            raise ValueError(problem)
        return self

    @model_validator(mode="after")
    def _adapters_have_an_engine_and_a_name_each(self) -> Self:
        names = [adapter.name for adapter in self.lora]
        if names and not self.traits.adapters:
            raise ValueError(
                f"{self.kind} cannot serve LoRA adapters, found {', '.join(names)}: remove lora, or choose "
                f"{', '.join(kinds_with_adapters())}"
            )
        if twice := sorted({name for name in names if names.count(name) > 1}):
            raise ValueError(f"lora names {', '.join(twice)} twice; requests choose an adapter by its name")
        return self


class Replicas(Written):
    """How many serving pods."""

    min: int = Field(default=1, ge=1, le=MAX_REPLICAS)
    max: int = Field(default=1, ge=1, le=MAX_REPLICAS)

    @model_validator(mode="after")
    def _ordered(self) -> Self:
        if self.max < self.min:
            raise ValueError(f"max {self.max} is below min {self.min}")
        return self


class Serving(Written):
    """Where and how the model is served."""

    image: ImageName | None = Field(
        default=None, description="serving image on one node; the site's image for this engine when absent"
    )
    replicas: Replicas = Replicas()
    autoscale: Autoscale | None = Field(
        default=None, description="how replicas follow the load; replicas.min pods serve when absent"
    )
    exposure: Literal["cluster", "ingress", "load-balancer"] = "cluster"
    ready_timeout_s: int = Field(
        default=600, ge=10, le=MAX_WAIT_S, description="how long a candidate may take to become ready"
    )
    drain_s: int | None = Field(
        default=None,
        ge=1,
        le=MAX_DRAIN_S,
        description="how long requests in flight may take when their server stops; "
        "gate.benchmark.request_timeout_s when absent",
    )
    connection_age_s: int = Field(
        default=60,
        ge=1,
        le=3600,
        description="how long a client may keep a connection before it is told to open another, which reaches the live "
        "release",
    )
    group: str | None = Field(
        default=None,
        pattern=DNS_LABEL,
        max_length=MAX_NAME_CHARS,
        description="server that this model shares with the others of its group; its own server when absent",
    )
    gpus: tuple[Annotated[int, Field(ge=0, lt=MAX_GPUS_OF_A_POD)], ...] = Field(
        default=(),
        max_length=MAX_GPUS_OF_A_POD,
        description="in a group: this model's GPUs among those of the server's pod, counted from 0",
    )

    @model_validator(mode="after")
    def _a_scaler_has_room_and_a_server_of_its_own(self) -> Self:
        if self.autoscale is None:
            return self
        if self.group is not None:
            raise ValueError(f"autoscale scales one model's server, and group {self.group} shares one: remove either")
        if self.replicas.max == self.replicas.min:
            raise ValueError(
                f"autoscale needs replicas.max above replicas.min, found {self.replicas.min} for both; they are its "
                "bounds"
            )
        return self

    @model_validator(mode="after")
    def _gpus_are_chosen_in_a_group_only(self) -> Self:
        if self.gpus and self.group is None:
            raise ValueError("gpus divides a server between the models of a group: remove gpus, or set group")
        if len(set(self.gpus)) != len(self.gpus):
            raise ValueError(f"gpus {list(self.gpus)} names a GPU twice")
        return self


class Rollout(Written):
    """How traffic shifts, and what stays deployed."""

    strategy: Literal["blue-green", "canary"] = "blue-green"
    steps: tuple[Annotated[int, Field(ge=1, le=99)], ...] = Field(default=(5, 25, 50), max_length=MAX_STEPS)
    bake_s: int = Field(
        default=0, ge=0, le=MAX_WAIT_S, description="how long a promoted release is watched before promote ends"
    )
    keep: int = Field(default=2, ge=1, le=MAX_KEPT, description="releases that stay deployed, the live one included")
    approval: Literal["none", "human"] = "none"


class ReleaseSpec(Written):
    """One model, from a revision to a Service."""

    if_invalid = "`slipway schema` prints its fields."

    apiVersion: Literal["slipway/v1"]  # noqa: N815 - the Kubernetes resource model's own spelling
    kind: Literal["Release"]
    name: str = Field(pattern=DNS_LABEL, max_length=MAX_NAME_CHARS, description="Service name and Triton model name")
    source: Source
    quantization: Quantization
    engine: Engine
    serving: Serving = Serving()
    gate: Gate
    rollout: Rollout = Rollout()
    schedule: str | None = Field(
        default=None,
        max_length=MAX_SCHEDULE_CHARS,
        description='cron expression of five fields, or a preset such as "@daily"',
    )

    @property
    def changes_weights(self) -> bool:
        """Whether quantize computes other weights or scales; otherwise the checkpoint's own pass through it."""
        if self.quantization.format not in KEPT_FORMATS:
            return True
        return self.quantization.kv_cache != "none" and not self.engine.traits.uncalibrated_cache

    @property
    def drain_s(self) -> int:
        """How long requests in flight may take when their server stops: by default, the benchmark's request timeout."""
        return self.serving.drain_s or min(MAX_DRAIN_S, ceil(self.gate.benchmark.request_timeout_s))

    @field_validator("name")
    @classmethod
    def _name_is_not_a_candidates(cls, name: str) -> str:
        if name.endswith("-candidate"):
            raise ValueError("a name may not end in -candidate: that Service belongs to the model's roll-out")
        return name

    @field_validator("schedule")
    @classmethod
    def _schedule_is_one_of_airflows(cls, schedule: str | None) -> str | None:
        return None if schedule is None else check_schedule(schedule)

    @property
    def gpus_reached(self) -> int:
        """GPUs that a pod must have for the ids in serving.gpus to exist: the highest id plus one, 0 without ids."""
        return max(self.serving.gpus, default=-1) + 1

    @model_validator(mode="after")
    def _a_group_has_room_for_the_model(self) -> Self:
        if self.serving.group is None or self.engine.gpu is None:
            return self
        ranks = self.engine.ranks
        if ranks > 1 and not self.engine.traits.several_gpus_in_a_group:
            raise ValueError(
                f"in a group {self.engine.kind} runs on one GPU, found {ranks}: its ranks own the whole server. "
                f"Remove serving.group, or choose {', '.join(kinds_with('several_gpus_in_a_group'))}"
            )
        if len(self.serving.gpus) != ranks:
            raise ValueError(
                f"serving.gpus names {len(self.serving.gpus)} GPUs, tensor_parallel x pipeline_parallel is {ranks}; "
                "in a group each rank is pinned to one"
            )
        return self

    @model_validator(mode="after")
    def _questions_choose_adapters_of_the_engine(self) -> Self:
        names = {adapter.name for adapter in self.engine.lora}
        for question in self.gate.smoke:
            if question.lora is not None and question.lora not in names:
                raise ValueError(
                    f"gate.smoke uses the adapter {question.lora}; engine.lora has {', '.join(sorted(names)) or 'none'}"
                )
        return self

    @model_validator(mode="after")
    def _questions_have_a_template_for_their_arguments(self) -> Self:
        for question in self.gate.smoke:
            self.engine.check_template_arguments("gate.smoke: chat_template_kwargs", question.chat_template_kwargs)
            self.engine.check_template_arguments("gate.smoke: history", question.history)
        if self.gate.quality is not None:
            field = "gate.quality.chat_template_kwargs"
            self.engine.check_template_arguments(field, self.gate.quality.chat_template_kwargs)
        return self

    @model_validator(mode="after")
    def _questions_are_sampled_as_the_engine_can(self) -> Self:
        asked = [("gate.smoke", question) for question in self.gate.smoke]
        for field, parameters in [*asked, *([("gate.quality", self.gate.quality)] if self.gate.quality else [])]:
            if problem := self.engine.sampling_problem(parameters):
                raise ValueError(f"{field}: {problem}")
        return self

    @model_validator(mode="after")
    def _the_harness_uses_an_api_of_the_engine(self) -> Self:
        harness = self.gate.harness
        if harness is not None and harness.api == "chat" and self.engine.options.get("chat_template") == "none":
            raise ValueError(
                "gate.harness.api chat needs a model that takes messages, and with engine.options.chat_template none "
                "it takes prompts only; choose completions"
            )
        return self

    @model_validator(mode="after")
    def _the_engine_exports_the_scalers_metric(self) -> Self:
        scaled, known = self.serving.autoscale, self.engine.traits.scaling_metrics
        if scaled is not None and scaled.metric not in known:
            raise ValueError(
                f"serving.autoscale.metric {scaled.metric} says nothing about the load of {self.engine.kind}, whose "
                f"server does not export it or whose requests never wait in Triton; choose {', '.join(sorted(known))}"
            )
        return self

    @model_validator(mode="after")
    def _engine_serves_the_format(self) -> Self:
        allowed = self.engine.traits.formats
        if self.quantization.format not in allowed:
            calibrated = sorted(allowed & CALIBRATED)
            needs = f"; of these, {', '.join(calibrated)} need quantization.calibration" if calibrated else ""
            raise ValueError(
                f"engine {self.engine.kind} cannot serve format {self.quantization.format}; "
                f"choose one of {', '.join(sorted(allowed))}{needs}"
            )
        return self
