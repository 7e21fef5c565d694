"""The `engine` section of a spec: what runs the model, its limits, and its LoRA adapters."""

from collections.abc import Collection
from typing import Self

from pydantic import Field, model_validator

from slipway.tasks.contracts.base import DNS_LABEL, UserDocument
from slipway.tasks.contracts.engine.engine_kinds import (
    ENGINE_KINDS,
    ROOM,
    EngineKind,
    EngineTraits,
    kinds_with,
    kinds_with_adapters,
)
from slipway.tasks.contracts.engine.expert_parallel import expert_problem
from slipway.tasks.contracts.engine.overrides import Overrides
from slipway.tasks.contracts.engine.sampling import SamplingParameters
from slipway.tasks.contracts.engine.speculation import Drafted, Speculative
from slipway.tasks.contracts.kubernetes_text import NonEmptyLabelValue
from slipway.tasks.contracts.spec.question import SmokeQuestion
from slipway.tasks.contracts.spec_fields import (
    MAX_ADAPTERS,
    MAX_NAME_CHARS,
    MAX_OPTIONS,
    MAX_QUESTIONS,
    MAX_RANKS,
    MAX_TOKENS,
    HubRepo,
    OptionName,
    OptionNumber,
    Revision,
    TemplateArguments,
    Tokens,
    may_be_a_list,
)


class Lora(UserDocument):
    """A LoRA adapter that requests may choose. It is fetched with the source's token."""

    name: str = Field(pattern=DNS_LABEL, max_length=MAX_NAME_CHARS, description="name that requests use")
    repo: HubRepo = Field(description="<org>/<name> on the Hub")
    revision: Revision = Field(default="main", description="branch, tag or commit; plan resolves it")


class LiveAdapter(Lora):
    """An adapter that is added to the model while it is live, and removed from it (docs/lora.md)."""

    smoke: tuple[SmokeQuestion, ...] = Field(
        min_length=1, max_length=MAX_QUESTIONS, description="questions with known answers, which it alone is asked"
    )

    @model_validator(mode="after")
    def _is_asked_itself(self) -> Self:
        if any(question.lora is not None for question in self.smoke):
            raise ValueError(f"smoke of adapter {self.name} are its own questions: leave lora out of them")
        return self


class Engine(UserDocument):
    """The engine that runs the model, and its limits."""

    kind: EngineKind
    gpu: NonEmptyLabelValue | None = Field(
        default=None,
        json_schema_extra=may_be_a_list,
        description="GPU product as the node's label names it, e.g. NVIDIA-L4; a list: a fleet",
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
    overrides: Overrides | None = Field(
        default=None,
        exclude_if=lambda overrides: overrides is None,  # pods of an older version read releases without it
        description="llmapi and vllm: fields that replace those of the model's config.json",
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
    def room_rank(self) -> int:
        """Highest rank of an adapter that can be added while the model is live; 0 where none can."""
        return self._count(ROOM)

    @property
    def room(self) -> int:
        """Adapters that are on the GPU at once, as the spec says; 0 where it leaves that open."""
        return self._count("max_loras")

    def _count(self, option: str) -> int:
        value = self.options.get(option)
        return value if isinstance(value, int) and not isinstance(value, bool) else 0

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
    def _the_kind_reads_what_is_overridden(self) -> Self:
        if self.overrides is not None and not self.traits.reads_config:
            raise ValueError(
                f"{self.kind} cannot override rope_parameters: remove overrides, or choose engine kind "
                f"{', '.join(kinds_with('reads_config'))}"
            )
        if self.overrides is not None and self.draft is not None:
            raise ValueError("overrides does not reach speculative's own model, which would have fewer positions")
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
