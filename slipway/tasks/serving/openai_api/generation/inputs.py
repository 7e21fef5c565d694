"""From a request of OpenAI's API to the inputs of a Triton model. Pure.

What a model can do is read from its configuration in Triton, which declares its inputs: an engine that learns a
parameter needs no change here, and a repository that was released before the parameter refuses it.
"""

import json
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import partial
from typing import Any

from slipway.tasks.contracts.wire.prompt_model import VLLM_SAMPLING, model_inputs
from slipway.tasks.serving.openai_api.generation.lora_models import ModelName, with_lora
from slipway.tasks.serving.openai_api.http.errors import ApiError, too_long
from slipway.tasks.serving.openai_api.requests.formats import Schema, answer_format
from slipway.tasks.serving.openai_api.requests.messages import plain
from slipway.tasks.serving.openai_api.requests.openai import SEEDS, ChatRequest, CompletionRequest
from slipway.tasks.serving.openai_api.requests.tool_calls import Echoed, Reader

MESSAGES, RAW_PROMPT, PROMPT_IDS, STOP_WORDS = "messages", "apply_chat_template", "prompt_ids", "stop_words"
TEMPLATE_ARGUMENTS, TOOLS = "chat_template_kwargs", "tools"
LOGPROBS, ALTERNATIVES, JSON_SCHEMA, LOGIT_BIAS = "logprobs", "top_logprobs", "json_schema", "logit_bias"
ECHO, PROMPT_LOGPROBS = "echo", "prompt_logprobs"
"""The client's name, and that of the input for an echo with log-probabilities."""
VLLM_LOGPROBS = "return_logprobs"
SEED, REQUEST_ID = "seed", "id"
"""The second is no input: Triton's generate extension takes it as the request's id, which its traces have."""
STREAM = "stream"
"""Always on: Triton 2.51 notices that a client has left only when it sends a response, and generates until then."""
BYTES_PER_TOKEN, LEAST_BYTES = 512, 65_536
"""What is longer than so many bytes for each token that a model takes is not handed on: no vocabulary has such tokens.
The model itself knows its longest one. A prompt of LEAST_BYTES is always handed on."""
USUAL_BYTES_PER_TOKEN = 4
MOST_LOGPROBS = 131_072
"""Log-probabilities that wait for one answer to be sent, alternatives included. Each takes half a KiB."""


@dataclass(frozen=True)
class ServedModel:
    """A model by its configuration in Triton.

    Attributes:
        name: its name.
        inputs: names of what it takes.
        outputs: names of what it answers.
        prompt_model: the model that makes its prompts of messages, if any.
        max_input_tokens: tokens of a prompt at most; None where the configuration does not say.
        max_sequence_tokens: tokens of a prompt and its answer at most; None where the configuration does not say.
    """

    name: str
    inputs: frozenset[str]
    outputs: frozenset[str]
    prompt_model: str | None = None
    max_input_tokens: int | None = None
    max_sequence_tokens: int | None = None

    @property
    def counts_tokens(self) -> bool:
        """Whether answers come with the number of tokens."""
        ours, vllm = {"prompt_tokens", "completion_tokens"}, {"num_input_tokens", "num_output_tokens"}
        return ours <= self.outputs or vllm <= self.outputs


def served_model(config: Mapping[str, Any]) -> ServedModel:
    """The model of a document of GET /v2/models/<name>/config."""
    known, outputs = model_inputs(config), frozenset(tensor["name"] for tensor in config.get("output") or ())
    return ServedModel(
        config["name"],
        known.names,
        outputs,
        known.prompt_model,
        _tokens(config, "max_input_tokens"),
        _tokens(config, "max_sequence_tokens"),
    )


def _tokens(config: Mapping[str, Any], name: str) -> int | None:
    text = ((config.get("parameters") or {}).get(name) or {}).get("string_value")
    return int(text) if text else None


@dataclass(frozen=True)
class Question:
    """What one answer is generated from.

    Attributes:
        inputs: those of the model.
        to_render: inputs of the model that makes its prompt first; None: the prompt is there.
        new_reader: makes what reads the call of a tool that the request forces; None leaves it to what the model says
            of itself.
        schema: what the answer obeys, whose grammar is not there yet; None where anything may be answered.
        trace_parent: the client's span, which Triton's traces continue; empty where it sent none.
        echoes_tokens: whether the answer's text begins with that of the prompt's tokens, as the model reports them.
        tools: names of the tools that the answer may call.
    """

    inputs: Mapping[str, Any]
    to_render: Mapping[str, Any] | None = None
    new_reader: Callable[[], Reader] | None = None
    schema: Schema | None = None
    trace_parent: str = ""
    echoes_tokens: bool = False
    tools: frozenset[str] = frozenset()

    def obeying(self, grammar: str) -> "Question":
        """The question with the grammar of its schema, where the engine takes that; other models write it themselves.

        `structured_outputs` holds JSON within JSON, as the backend of vLLM reads it (vllm_backend 8de0c14,
        vllm_backend_utils.py).
        """
        if VLLM_SAMPLING not in self.inputs:
            return self
        sampling = json.loads(self.inputs[VLLM_SAMPLING]) | {"structured_outputs": json.dumps({"grammar": grammar})}
        return replace(self, inputs={**self.inputs, VLLM_SAMPLING: json.dumps(sampling, ensure_ascii=False)})

    @property
    def prompt_tokens(self) -> int:
        """About how many tokens the prompt has: the model tells when its answer ends, or never."""
        asked = self.inputs if self.to_render is None else self.to_render
        size = sum(len(asked.get(name, "").encode()) for name in ("text_input", MESSAGES, TOOLS))
        return len(asked.get(PROMPT_IDS, ())) + size // USUAL_BYTES_PER_TOKEN

    def again(self, number: int) -> "Question":
        """The question of a further answer to the same prompt: where a seed decides, it is another one."""
        return replace(self, inputs=_with_seed_of(self.inputs, number))

    def of_request(self, request_id: str, trace_parent: str) -> "Question":
        """The question as part of a request, whose id and span go with it to every model."""
        to_render = None if self.to_render is None else {**self.to_render, REQUEST_ID: request_id}
        inputs = {**self.inputs, REQUEST_ID: request_id}
        return replace(self, inputs=inputs, to_render=to_render, trace_parent=trace_parent)


def _with_seed_of(inputs: Mapping[str, Any], number: int) -> Mapping[str, Any]:
    if VLLM_SAMPLING in inputs:
        sampling = _with_seed_of(json.loads(inputs[VLLM_SAMPLING]), number)
        return {**inputs, VLLM_SAMPLING: json.dumps(sampling, ensure_ascii=False)}
    return {**inputs, SEED: (inputs[SEED] + number) % SEEDS} if SEED in inputs else inputs


def questions_of(request: ChatRequest | CompletionRequest, model: ServedModel) -> list[Question]:
    """What a request asks the model, or the adapter of it that the request names.

    Raises:
        ApiError: the model cannot do something that was requested.
    """
    if isinstance(request, ChatRequest):
        questions = [chat_question(request, model)]
    else:
        questions = completion_questions(request, model)
    adapter = ModelName.read(request.model).adapter
    return [replace(question, inputs=with_lora(question.inputs, adapter)) for question in questions]


def chat_question(request: ChatRequest, model: ServedModel) -> Question:
    """What a conversation asks the model.

    Raises:
        ApiError: the model cannot do something that was requested.
    """
    if model.prompt_model is None and MESSAGES not in model.inputs:
        raise ApiError(
            f"the model {model.name} takes no messages: it was released before Slipway's models took messages. Send a "
            "prompt to /v1/completions, or release the model again.",
            param="messages",
        )
    _refuse_long([message.text + message.thoughts for message in request.messages], model, "messages")
    wanted = answer_format(request)
    parameters = _parameters(request, model, wanted.schema)
    if model.prompt_model is None:
        inputs = {**_conversation(request, model), **parameters}
        return Question(inputs, new_reader=wanted.new_reader, schema=wanted.schema, tools=request.tool_names)
    lengths = {"max_tokens": request.answer_tokens, "min_tokens": request.min_tokens or None}
    given = {name: value for name, value in lengths.items() if value is not None}
    to_render = {**_conversation(request, None), **given}
    return Question(parameters, to_render, wanted.new_reader, wanted.schema, tools=request.tool_names)


def _conversation(request: ChatRequest, model: ServedModel | None) -> dict[str, Any]:
    """Messages, tools and arguments of the chat template. Without a `model`, one takes them all."""
    messages = json.dumps(plain(request.messages), ensure_ascii=False)
    arguments = request.template_arguments
    given = {TEMPLATE_ARGUMENTS: json.dumps(arguments, ensure_ascii=False)} if arguments else {}
    if request.tools and request.offers_tools:
        given[TOOLS] = json.dumps([tool.plain() for tool in request.tools], ensure_ascii=False)
    if model is not None:
        _refuse([name for name in given if name not in model.inputs], model)
    return {"text_input": "", MESSAGES: messages, **given}


def completion_questions(request: CompletionRequest, model: ServedModel) -> list[Question]:
    """One for each prompt, which is continued as it is.

    Raises:
        ApiError: the model cannot do something that was requested.
    """
    texts = [prompt for prompt in request.prompts if isinstance(prompt, str)]
    _refuse_long(texts, model, "prompt")
    if len(texts) < len(request.prompts) and PROMPT_IDS not in model.inputs:
        raise ApiError(
            f"the model {model.name} was released before Slipway's models took prompts of token ids. Send texts, or "
            "release it again.",
            param="prompt",
            code="unsupported_parameter",
        )
    takes_prompts = VLLM_SAMPLING in model.inputs
    if not takes_prompts and RAW_PROMPT not in model.inputs:
        raise ApiError(
            f"the model {model.name} was released before Slipway's models took prompts without a chat template. "
            "Release it again.",
            param="prompt",
        )
    schema = answer_format(request).schema
    parameters = _parameters(request, model, schema)
    _refuse_many_echoed(request, model)
    as_it_is = {} if takes_prompts else {RAW_PROMPT: False}
    questions = [
        Question({**_prompt(prompt), **as_it_is, **parameters}, schema=schema, new_reader=_echo_of(prompt, request))
        for prompt in request.prompts
    ]
    return [replace(each, echoes_tokens=bool(request.echo) and each.new_reader is None) for each in questions]


def _refuse_many_echoed(request: CompletionRequest, model: ServedModel) -> None:
    """Refuse what the process would keep of prompts alone. A text may have a token for each byte.

    Raises:
        ApiError: it is too much.
    """
    if not request.echo or request.logprobs is None:
        return
    sizes = [len(each.encode() if isinstance(each, str) else each) for each in request.prompts]
    tokens = sum(min(size, model.max_input_tokens or size) for size in sizes)
    count = tokens * request.answers_per_prompt * (1 + request.logprobs)
    if count > MOST_LOGPROBS:
        raise ApiError(
            f"echo with logprobs asks for up to {count} log-probabilities of prompts: tokens, times n, times 1 + "
            f"logprobs; the limit is {MOST_LOGPROBS}. Send fewer prompts at once, or lower n or logprobs.",
            param=ECHO,
        )


def _echo_of(prompt: str | list[int], request: CompletionRequest) -> Callable[[], Reader] | None:
    """What puts the text of a prompt before its answer, where that is known here."""
    if not request.echo:
        return None
    if isinstance(prompt, str):
        return partial(Echoed, prompt)
    if request.logprobs is None:
        raise ApiError(
            "echo of token ids needs logprobs: 0 or more, with which the model says their texts.", param=ECHO
        )
    return None


def _prompt(prompt: str | list[int]) -> dict[str, Any]:
    return {"text_input": prompt} if isinstance(prompt, str) else {"text_input": "", PROMPT_IDS: prompt}


def _refuse_long(texts: Iterable[str], model: ServedModel, param: str) -> None:
    if model.max_input_tokens is None:
        return
    size, most = sum(len(text.encode()) for text in texts), max(LEAST_BYTES, model.max_input_tokens * BYTES_PER_TOKEN)
    if size > most:
        raise too_long(
            f"{param} has {size} bytes of text; the model {model.name} takes at most {model.max_input_tokens} tokens. "
            "Shorten it.",
            param=param,
            longest=model.max_sequence_tokens,
        )


def _parameters(request: ChatRequest | CompletionRequest, model: ServedModel, schema: Schema | None) -> dict[str, Any]:
    _refuse_unknown(request.unknown(), model)
    if schema and request.ignore_eos:  # Slipway's models say so too; Triton's backend of vLLM does not
        raise ApiError(
            f"ignore_eos and {schema.param} exclude one another: an answer ends with its JSON. Leave one out.",
            param="ignore_eos",
        )
    if request.includes_usage and not model.counts_tokens:
        _refuse(["stream_options.include_usage"], model)
    if VLLM_SAMPLING in model.inputs:
        return _vllm_parameters(request, model)
    stop = {STOP_WORDS: request.stop_words} if request.stop_words else {}
    # a greedy answer is the same with every seed, which a model that cannot obey one need not know
    seed = request.engine_seed if request.temperature or "seed" in model.inputs else None
    known = {"max_tokens": request.answer_tokens, "temperature": request.temperature, "seed": seed}
    given = {name: value for name, value in known.items() if value is not None} | request.sampling() | stop
    if request.logit_bias:
        given[LOGIT_BIAS] = json.dumps(request.logit_bias)
    if request.alternatives is not None:
        given |= {LOGPROBS: True} | _alternatives(request, request.alternatives, model)
    if schema:
        given[JSON_SCHEMA] = schema.text
    _refuse([_as_sent(name, request, schema) for name in given if name not in model.inputs], model)
    return {STREAM: True, **given}


def _alternatives(request: ChatRequest | CompletionRequest, number: int, model: ServedModel) -> dict[str, int]:
    """Inputs for the likeliest tokens. With an echo, those of the first token are reported with the prompt's."""
    if not (isinstance(request, CompletionRequest) and request.echo):
        return {ALTERNATIVES: number} if number else {}
    is_enough = ALTERNATIVES not in model.inputs and request.answer_tokens == 1
    return {PROMPT_LOGPROBS: number} | ({ALTERNATIVES: number} if number and not is_enough else {})


def _as_sent(name: str, request: ChatRequest | CompletionRequest, schema: Schema | None) -> str:
    """What the client called the parameter that became an input."""
    if name == JSON_SCHEMA and schema is not None:
        return "tool_choice" if schema.param == "tools" else schema.param
    if name == ALTERNATIVES and isinstance(request, CompletionRequest):
        return LOGPROBS
    return {STOP_WORDS: "stop", PROMPT_LOGPROBS: ECHO}.get(name, name)


def _vllm_parameters(request: ChatRequest | CompletionRequest, model: ServedModel) -> dict[str, Any]:
    """VLLM's own default temperature is 1; here it is 0, as for every other kind."""
    if request.logit_bias:  # names of members are texts in JSON, and vLLM wants numbers
        _refuse([LOGIT_BIAS], model)
    sampling: dict[str, Any] = {"temperature": request.temperature or 0, **request.sampling()}
    known = {"max_tokens": request.answer_tokens, "seed": request.engine_seed, "stop": request.stop_words or None}
    sampling |= {name: value for name, value in known.items() if value is not None}
    if request.alternatives is not None:
        if isinstance(request, CompletionRequest) and request.echo:
            _refuse([ECHO], model)
        if VLLM_LOGPROBS not in model.inputs:
            _refuse([LOGPROBS], model)
        sampling["logprobs"] = request.alternatives
    switches = (
        "exclude_input_in_output",
        "return_finish_reason",
        "return_num_input_tokens",
        "return_num_output_tokens",
        *([VLLM_LOGPROBS] if request.alternatives is not None else []),
    )
    return {
        STREAM: True,
        VLLM_SAMPLING: json.dumps(sampling, ensure_ascii=False),
        **{name: True for name in switches if name in model.inputs},
    }


def _refuse_unknown(parameters: Iterable[str], model: ServedModel) -> None:
    """Refuse parameters that no engine kind obeys, all of them in one error.

    Raises:
        ApiError: there is one.
    """
    names = list(parameters)
    if names:
        raise ApiError(
            f"the model {model.name} does not support {_listed(names)}, and no engine kind does. Leave it out.",
            param=names[0][:64],
            code="unsupported_parameter",
        )


def _listed(names: Sequence[str]) -> str:
    return ", ".join(name[:64] for name in names[:10])


def _refuse(parameters: Iterable[str], model: ServedModel) -> None:
    """Refuse parameters that the model cannot obey and another engine kind can, all of them in one error.

    Raises:
        ApiError: there is one.
    """
    names = list(parameters)
    if names:
        raise ApiError(
            f"the model {model.name} does not support {_listed(names)}. Leave it out, or release the model with "
            "an engine kind or option that takes it (docs/openai.md, Parameters by engine kind).",
            param=names[0][:64],
            code="unsupported_parameter",
        )
