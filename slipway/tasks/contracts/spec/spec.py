"""The release spec: what a user requests. `slipway schema` prints it as JSON Schema."""

from math import ceil
from typing import Literal, Self

from pydantic import ConfigDict, Field, field_validator, model_validator

from slipway.tasks.contracts.base import DNS_LABEL, UserDocument
from slipway.tasks.contracts.engine.engine_kinds import (
    ENGINE_KINDS,
    KEPT_FORMATS,
    ROOM,
    EngineTraits,
    QuantizationFormat,
    kinds_with,
)
from slipway.tasks.contracts.notifications import MAX_NOTIFIERS, Notifier
from slipway.tasks.contracts.schedule import MAX_SCHEDULE_CHARS, asset_of, check_trigger, model_asset
from slipway.tasks.contracts.spec.engine import Engine, LiveAdapter
from slipway.tasks.contracts.spec.gate import Gate
from slipway.tasks.contracts.spec.rollout import Rollout
from slipway.tasks.contracts.spec.serving import Serving
from slipway.tasks.contracts.spec_fields import (
    MAX_ADAPTERS,
    MAX_DRAIN_S,
    MAX_NAME_CHARS,
    MAX_TOKENS,
    HubFileUri,
    HubRepo,
    Revision,
    SecretRef,
    SourceUri,
    may_be_a_fleet,
)

CALIBRATED: frozenset[str] = frozenset({"int8_sq", "int4_awq", "w4a8_awq", "fp8", "nvfp4"})
"""Formats whose scales come from activations on calibration texts."""

MAIN = "main"
"""The Hub's name of every repository's first branch."""


class Source(UserDocument):
    """Which model to fetch, and the credentials for it."""

    repo: HubRepo | None = Field(default=None, description="<org>/<name> on the Hub")
    revision: Revision = Field(default=MAIN, description="branch, tag or commit of repo; plan resolves it")
    token_secret: SecretRef | None = Field(default=None, description="Secret that holds a Hub token: <name>/<key>")
    uri: SourceUri | None = Field(
        default=None,
        exclude_if=lambda uri: uri is None,  # pods of an older version read releases of the Hub
        description="in place of repo: s3://<bucket>/<prefix> of a checkpoint's files, read with the access that the "
        "site's steps have to their object store; pvc://<claim>[/<folder>], a folder of a PersistentVolumeClaim in the "
        "namespace of steps; or mlflow:<model>@<alias> or mlflow:<model>/<version>, a registered model whose files are "
        "in a folder of an object store",
    )

    @property
    def model(self) -> str:
        """How messages name the model: its repository, or its URI."""
        return self.repo or str(self.uri)

    @model_validator(mode="after")
    def _is_a_repository_or_a_folder(self) -> Self:
        if (self.repo is None) == (self.uri is None):
            raise ValueError("source needs either repo, a repository of the Hub, or uri, a folder elsewhere")
        if self.uri is not None and (self.revision != MAIN or self.token_secret is not None):
            raise ValueError("source.revision and source.token_secret are of a repository: remove them beside uri")
        return self


class Calibration(UserDocument):
    """Texts for calibrating quantization."""

    dataset: HubFileUri = Field(description='JSONL on the Hub, one {"text": str} per line')
    samples: int = Field(default=512, ge=1, le=8192)
    max_tokens: int = Field(default=2048, ge=16, le=MAX_TOKENS, description="tokens kept of each sample")


class Quantization(UserDocument):
    """How weights and KV cache are quantized."""

    format: QuantizationFormat
    kv_cache: Literal["none", "fp8", "int8"] = "none"
    calibration: Calibration | None = None

    def reads_texts(self, traits: EngineTraits) -> bool:
        """Whether an engine of these traits derives scales from texts, for activations or for the cache."""
        uncalibrated = traits.uncalibrated_cache and self.format in KEPT_FORMATS
        return self.format in CALIBRATED or (self.kv_cache != "none" and not uncalibrated)


class ReleaseSpec(UserDocument):
    """One model, from a revision to a Service."""

    model_config = ConfigDict(json_schema_extra=may_be_a_fleet)

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
    adapters: tuple[LiveAdapter, ...] = Field(
        default=(),
        max_length=MAX_ADAPTERS,
        exclude_if=lambda adapters: not adapters,  # pods of an older version read releases without them
        description="LoRA adapters that `slipway adapters` adds to the live release; no part of a release",
    )
    schedule: str | None = Field(
        default=None,
        max_length=MAX_SCHEDULE_CHARS,
        description='cron expression of five fields, a preset such as "@daily", or the name or URI of an asset of '
        "Airflow, each of whose events starts a release; slipway/<name> is that of another model here",
    )
    notifications: tuple[Notifier, ...] = Field(
        default=(),
        max_length=MAX_NOTIFIERS,
        description="who is told besides those of the site; its notifications.from_specs says what may be named here",
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
            raise ValueError("a name may not end in -candidate: that Service belongs to the model's rollout")
        return name

    @field_validator("schedule")
    @classmethod
    def _schedule_is_one_of_airflows(cls, schedule: str | None) -> str | None:
        return None if schedule is None else check_trigger(schedule)

    @model_validator(mode="after")
    def _a_release_does_not_follow_itself(self) -> Self:
        if asset_of(self.schedule) in model_asset(self.name):
            raise ValueError(
                f"schedule {self.schedule} is this model's own asset: each promotion would start a release"
            )
        return self

    @model_validator(mode="after")
    def _a_shape_is_of_servers_on_cpu(self) -> Self:
        if self.serving.shape is not None and self.engine.traits.on_gpu:
            raise ValueError(
                f"serving.shape {self.serving.shape} is of servers on CPU, and {self.engine.kind} runs on engine.gpu, "
                "in pods of the site's shape gpu: remove serving.shape"
            )
        return self

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
    def _a_canary_shifts_the_weights_of_a_route(self) -> Self:
        if self.rollout.strategy != "canary":
            return self
        if self.serving.exposure != "ingress":
            raise ValueError(
                f"rollout.strategy canary shifts the weights of a route, and serving.exposure {self.serving.exposure} "
                "makes none: choose exposure ingress on a site whose routes are of kind gateway, or blue-green"
            )
        if self.serving.group is not None:
            raise ValueError(
                f"rollout.strategy canary compares two servers of one model, and group {self.serving.group} shares "
                "one: choose blue-green, or remove serving.group"
            )
        return self

    @model_validator(mode="after")
    def _a_drill_moves_one_model(self) -> Self:
        if self.rollout.drill is not None and self.serving.group is not None:
            raise ValueError(
                f"rollout.drill would restart group {self.serving.group}, whose server holds other models: remove "
                "rollout.drill, or serving.group"
            )
        return self

    @model_validator(mode="after")
    def _without_a_surge_nothing_is_compared_with_live(self) -> Self:
        if self.rollout.surge == "full":
            return self
        if self.serving.group is not None:
            raise ValueError(
                f"rollout.surge none stops the live release's server, and group {self.serving.group} shares it with "
                "other models: choose surge full, or remove serving.group"
            )
        compared = [f"gate.expect {line.metric}" for line in self.gate.expect if line.of == "live"]
        tasks = self.gate.harness.tasks if self.gate.harness else ()
        compared += [f"gate.harness {task.task}" for task in tasks if task.max_drop_of_live is not None]
        if compared:
            raise ValueError(
                f"{', '.join(compared)}: compared with live, which with rollout.surge none is scaled to one replica or "
                "stopped while the candidate is measured. Give absolute limits (at_most, at_least), for example from "
                "the live release's own gate (`slipway explain`), or choose surge full"
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
    def _adapters_can_be_added_to_the_live_release(self) -> Self:
        engine, support = self.engine, self.engine.traits.adapters
        if not self.adapters:
            return self
        if support is None or support.fixed_because:
            why = support.fixed_because if support else "it serves no LoRA adapters"
            others = [kind for kind, traits in ENGINE_KINDS.items() if ROOM in traits.options]
            raise ValueError(
                f"{engine.kind} cannot take adapters while it is live: {why}. Choose engine kind {', '.join(others)}"
                f"{', or name them in engine.lora' if support else ''}"
            )
        if not (engine.room_rank and engine.room):
            raise ValueError(
                f"adapters need room in the server, which is fixed when it starts: set engine.options.{ROOM} and "
                "engine.options.max_loras, and release the model"
            )
        if self.serving.group is not None:
            raise ValueError(f"adapters need a server of the model's own, and group {self.serving.group} shares one")
        names = [each.name for each in (*engine.lora, *self.adapters)]
        if twice := sorted({name for name in names if names.count(name) > 1}):
            raise ValueError(f"engine.lora and adapters name {', '.join(twice)} twice; requests choose one by its name")
        if len(names) > engine.room:
            raise ValueError(
                f"engine.lora and adapters name {len(names)} adapters, and engine.options.max_loras has room for "
                f"{engine.room}: raise it and release the model, or remove adapters"
            )
        return self

    @model_validator(mode="after")
    def _questions_have_a_template_for_their_arguments(self) -> Self:
        for question in (*self.gate.smoke, *(one for each in self.adapters for one in each.smoke)):
            self.engine.check_template_arguments("gate.smoke: chat_template_kwargs", question.chat_template_kwargs)
            self.engine.check_template_arguments("gate.smoke: history", question.history)
        if self.gate.quality is not None:
            field = "gate.quality.chat_template_kwargs"
            self.engine.check_template_arguments(field, self.gate.quality.chat_template_kwargs)
        return self

    @model_validator(mode="after")
    def _questions_are_sampled_as_the_engine_can(self) -> Self:
        asked = [("gate.smoke", question) for question in self.gate.smoke]
        asked += [(f"smoke of adapter {each.name}", question) for each in self.adapters for question in each.smoke]
        for field, parameters in [*asked, *([("gate.quality", self.gate.quality)] if self.gate.quality else [])]:
            if problem := self.engine.sampling_problem(parameters):
                raise ValueError(f"{field}: {problem}")
        return self

    @model_validator(mode="after")
    def _prompts_and_answers_of_the_load_fit_the_engine(self) -> Self:
        asked, engine = self.gate.benchmark.prompts, self.engine
        if asked is None:
            return self
        for name, room, words in (
            ("input_tokens", engine.max_input_tokens, "engine.max_input_tokens"),
            ("output_tokens", engine.answer_room, "the engine's room for an answer after the longest prompt"),
        ):
            if (getattr(asked, name) or 0) > room:
                raise ValueError(
                    f"gate.benchmark.prompts.{name} {getattr(asked, name)} is above {words}, {room}: lower it, or "
                    "raise the engine's limits"
                )
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
