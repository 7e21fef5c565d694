"""Facts about each engine kind, independent of spec and site: one record per kind.

A new kind is one record here, one folder in slipway/tasks/engines and one in model_repository_templates. No other
module may compare the name of a kind; they read a field of the record instead.
"""

from collections.abc import Mapping
from dataclasses import dataclass
from types import MappingProxyType
from typing import Literal

from slipway.tasks.contracts.engine.lora_support import ENGINE_ADAPTERS, LLMAPI_ADAPTERS, VLLM_ADAPTERS, LoraSupport
from slipway.tasks.contracts.engine.sampling import SAMPLING_NAMES
from slipway.tasks.contracts.engine.scaling import ScalingMetric
from slipway.tasks.contracts.engine.triton_releases import ROWS, Flavour

EngineKind = Literal["openvino", "trt-engine", "llmapi", "vllm"]
QuantizationFormat = Literal[
    "none", "int8", "int4", "int8_wo", "int4_wo", "int8_sq", "int4_awq", "w4a8_awq", "fp8", "fp8_online", "nvfp4"
]
KEPT_FORMATS: frozenset[QuantizationFormat] = frozenset({"none", "fp8_online"})
"""Formats whose checkpoint quantize passes on unchanged: `none` as it is, and `fp8_online`, which the server makes of
16-bit weights as it loads them."""
ExpertParallel = Literal["none", "any", "all"]
"""Numbers of ranks that may share out the experts of a mixture: none, any divisor of tensor_parallel, or all ranks."""
SpeculativeMethod = Literal["eagle", "eagle3", "draft_model", "mtp", "ngram"]
"""Ways to guess tokens ahead (slipway/tasks/contracts/engine/speculation.py)."""

DOCUMENTS = (
    "config.json",
    "tokenizer_config.json",
    "hf_quant_config.json",
    "model.safetensors.index.json",
    "chat_template.jinja",
    "chat_template.json",
)
"""Small files of a model that plan reads from the Hub before any weight is downloaded."""

ROOM = "max_lora_rank"
"""Option of a kind whose running servers take further adapters: they are started with room for this rank."""
COMMON_OPTIONS = ("chat_template", "kv_cache_fraction", "max_num_tokens", "chunked_prefill", "kv_cache_host_gib")


def _serving(flavour: Flavour) -> tuple[str, ...]:
    """Triton releases whose image of this flavour may serve, oldest first."""
    return tuple(row[0] for row in reversed(ROWS[flavour]) if row[-1])


TRTLLM_RELEASES = _serving("trtllm")
"""tests/contracts records their tools; each record names what is not confirmed."""
VLLM_RELEASES = _serving("vllm")
"""Those whose vLLM has a table in slipway/tasks/engines/upstream."""
NEWEST_VLLM = next(row[1] for row in ROWS["vllm"] if row[-1])
"""It knows most classes, of those that generate and of the others."""


@dataclass(frozen=True)
class EngineTraits:
    """Facts about one engine kind."""

    formats: frozenset[QuantizationFormat]
    """Weight formats that it serves on some hardware; slipway/tasks/contracts/spec/gpu_formats.py lists the GPUs."""
    reads_at_plan: tuple[str, ...] = DOCUMENTS
    on_gpu: bool = True
    """Runs on the GPU product that the spec names; otherwise on CPU."""
    compiled: bool = False
    """Quantize and build run on the GPU product, and their result loads on that product only."""
    flavour: Flavour | None = None
    """Triton image that holds its runtime; None where the image is Slipway's own."""
    triton_releases: tuple[str, ...] = ()
    """Triton releases that may serve it, oldest first."""
    quantized_by_modelopt: bool = False
    """Quantize runs in the site's ModelOpt image."""
    uncalibrated_cache: bool = False
    """Stores keys and values in FP8 with scale 1.0 beside weights that keep their format; otherwise scales of the cache
    come from calibration."""
    adapters: LoraSupport | None = None
    """What it serves of LoRA adapters, which requests choose by name; None: none."""
    sampling: frozenset[str] = SAMPLING_NAMES
    """Parameters of an answer that it obeys (slipway/tasks/contracts/engine/sampling.py); docs/openai.md says why."""
    final_channel_only: bool = False
    """The server returns only the final channel of an answer in channels; otherwise all of them as one text."""
    server_per_rank: bool = False
    """Each rank is a tritonserver process that mpirun starts; otherwise one server starts all its ranks."""
    spans_nodes: bool = False
    """Ranks may run on several nodes."""
    rank_launcher: str | None = None
    """Over several nodes: program that mpirun starts for each rank, and that starts the one server at rank 0."""
    one_node_because: str = ""
    """Why a server does not span nodes, as the end of a sentence."""
    several_gpus_in_a_group: bool = False
    """A group's member may have more than one GPU."""
    expert_parallel: ExpertParallel = "none"
    """Over how many ranks it can share out the experts of a mixture."""
    uneven_experts: bool = False
    """Ranks may hold different numbers of experts."""
    speculative: frozenset[SpeculativeMethod] = frozenset()
    """Ways in which it can guess tokens ahead."""
    attention_dp: bool = False
    """Each rank may compute the attention of its own requests, in place of a part of everyone's."""
    cache_share_of_free: bool = False
    """`kv_cache_fraction` is the cache's share of the memory that is free once the model is loaded; otherwise it is the
    share of the whole GPU that everything may take."""
    cache_of_windows: bool = False
    """Its cache keeps only the window of a layer with sliding-window attention; otherwise the whole sequence."""
    unloads_dead_engine: bool = False
    """Its backend unloads a model whose engine has died, for which Triton has to allow that models are unloaded."""
    completes_configs: bool = False
    """Some of its releases have a config.pbtxt that Triton must complete."""
    scaling_metrics: frozenset[ScalingMetric] = frozenset({"request_rate", "requests_in_flight"})
    """What tells the load of its servers.

    A Python model takes every request at once: with 46 of 48 requests waiting for openvino,
    nv_inference_pending_request_count was 0, and Triton's queue took 1 % of the time (measured; python_backend main,
    src/pb_metric_reporter.cc, reports the time in `execute` alone). Triton's vLLM backend is one too; it exports
    counters and histograms, and no gauge of waiting requests or of the cache (vllm_backend r26.01 and 8de0c148,
    src/utils/metrics.py)."""
    options: tuple[str, ...] = ()
    """engine.options of a kind that runs on GPUs (slipway/tasks/engines/preflight/engine_options.py)."""
    does_by_itself: frozenset[str] = frozenset()
    """engine.options of other kinds whose effect it has without a setting."""
    reads_config: bool = False
    """Its runtime reads config.json when it starts, so that engine.overrides can replace fields of it."""
    always_chunks: bool = False
    """Computes prompts in several steps, whatever chunked_prefill says."""
    measures_perplexity: bool = True
    """Quantize can measure gate.quality.perplexity."""


OPENVINO = EngineTraits(
    formats=frozenset({"none", "int8", "int4"}),
    on_gpu=False,
    final_channel_only=True,
    sampling=SAMPLING_NAMES - {"bad_words"},
)
TRT_ENGINE = EngineTraits(
    formats=frozenset({"none", "int8_wo", "int4_wo", "int8_sq", "int4_awq", "w4a8_awq", "fp8", "nvfp4"}),
    compiled=True,
    flavour="trtllm",
    triton_releases=TRTLLM_RELEASES,
    adapters=ENGINE_ADAPTERS,
    server_per_rank=True,
    # the ranks of the C++ runtime are processes, which mpirun can start on other nodes
    spans_nodes=True,
    # --moe_tp_size and --moe_ep_size of convert_checkpoint.py (tests/contracts/convert_checkpoint.yaml)
    expert_parallel="any",
    # TensorRT-LLM's free_gpu_memory_fraction
    cache_share_of_free=True,
    # nv_trt_llm_request_metrics and nv_trt_llm_kv_cache_block_metrics of the tensorrtllm backend (README.md of
    # tensorrtllm_backend 0b9d7d5a); the ratio as NVIDIA's tutorials scale the same backend by it (tutorials e8489525)
    scaling_metrics=frozenset(
        {"queue_compute_ratio", "waiting_requests", "kv_cache_use", "request_rate", "requests_in_flight"}
    ),
    options=(*COMMON_OPTIONS, "max_loras", "guided_decoding_backend"),
    # no logits before it is served
    measures_perplexity=False,
)
LLMAPI = EngineTraits(
    # No int8_wo: TensorRT-LLM's documentation lists no 8-bit weights with 16-bit activations for its PyTorch runtime
    # (docs/source/features/quantization.md, 1.2), and the code that loads them ignores the biases of linear layers,
    # which Qwen2 and Qwen2.5 have (tensorrt_llm/_torch/modules/linear.py, WeightOnlyQuantLinearMethod.apply).
    formats=frozenset({"none", "int4_awq", "w4a8_awq", "fp8", "nvfp4"}),
    flavour="trtllm",
    reads_config=True,
    triton_releases=TRTLLM_RELEASES,
    quantized_by_modelopt=True,
    # docs/source/features/quantization.md, FP8 KV Cache, 1.2: also "for checkpoints that do not have it enabled"
    uncalibrated_cache=True,
    final_channel_only=True,
    # TorchSampler of 1.2 ignores the others (docs/decisions/0021-sampling-parameters.md)
    sampling=frozenset({"temperature", "stop", "top_p", "top_k", "min_tokens"}),
    adapters=LLMAPI_ADAPTERS,
    # tensorrtllm_backend docs/llmapi.md at 0b9d7d5, multi-node configuration; mpirun over ssh in place of srun:
    # TensorRT-LLM examples/models/core/deepseek_v3/README.md at 010892fd (docs/decisions/0018)
    spans_nodes=True,
    rank_launcher="trtllm-llmapi-launch",
    # gpu_device_ids of Triton's llmapi model
    several_gpus_in_a_group=True,
    # moe_expert_parallel_size and enable_attention_dp of LLM() (tests/contracts/llm_arguments.yaml)
    expert_parallel="any",
    attention_dp=True,
    # no EAGLE 1 and 2: the PyTorch runtime has EAGLE 3 only (docs/source/features/speculative-decoding.md at 04c8822c)
    speculative=frozenset({"eagle3", "draft_model", "mtp", "ngram"}),
    cache_share_of_free=True,
    options=(*COMMON_OPTIONS, "prefix_caching", "max_loras", "guided_decoding_backend"),
)
VLLM = EngineTraits(
    formats=frozenset({"none", "fp8", "fp8_online", "nvfp4"}),
    flavour="vllm",
    reads_config=True,
    triton_releases=VLLM_RELEASES,
    quantized_by_modelopt=True,
    # vllm/model_executor/layers/quantization/kv_cache.py, at v0.19.0 and v0.24.0: scale 1.0 where a checkpoint has none
    uncalibrated_cache=True,
    adapters=VLLM_ADAPTERS,
    cache_of_windows=True,
    final_channel_only=True,
    # vllm_backend, src/model.py, _check_health: since r24.12 (b594d07); read at r26.01 (c70d654). Of releases that were
    # made with that backend; Slipway's own model ends its server
    unloads_dead_engine=True,
    # of the same releases: src/model.py, auto_complete_config, adds inputs, outputs and the transaction policy
    completes_configs=True,
    # enable_expert_parallel is a switch: the experts are shared out over all ranks of a stage, as evenly as they can be
    # (vllm/model_executor/layers/fused_moe, determine_expert_map at v0.19.0)
    expert_parallel="all",
    uneven_experts=True,
    # vllm/config/speculative.py, SpeculativeMethod, at v0.19.0, v0.22.1 and v0.24.0
    speculative=frozenset({"eagle", "eagle3", "draft_model", "mtp", "ngram"}),
    one_node_because="nothing starts vLLM's ranks on other nodes, and the first one's address would have to be in a "
    "file that is written before there is a pod",
    # no attention_dp: it is data_parallel_size there, whose ranks are engines of their own, and Triton's backend is not
    # known to serve several (docs/decisions/0018)
    # gpu_memory_utilization is of the whole GPU
    options=(*COMMON_OPTIONS, "enforce_eager", "prefix_caching", "max_loras", ROOM),
    does_by_itself=frozenset({"guided_decoding_backend"}),
    always_chunks=True,
)

ENGINE_KINDS: Mapping[EngineKind, EngineTraits] = MappingProxyType(
    {"openvino": OPENVINO, "trt-engine": TRT_ENGINE, "llmapi": LLMAPI, "vllm": VLLM}
)


def kinds_with_adapters() -> tuple[EngineKind, ...]:
    """Kinds that serve LoRA adapters."""
    return tuple(kind for kind, traits in ENGINE_KINDS.items() if traits.adapters)


def kinds_with(trait: str, value: object = True) -> tuple[EngineKind, ...]:
    """Kinds whose trait has this value."""
    return tuple(kind for kind, traits in ENGINE_KINDS.items() if getattr(traits, trait) == value)


def outlasting(kind: EngineKind) -> tuple[EngineKind, ...]:
    """Kinds on GPUs that a later Triton release serves than this one's last."""
    last = ENGINE_KINDS[kind].triton_releases[-1]
    return tuple(other for other in kinds_with("on_gpu") if ENGINE_KINDS[other].triton_releases[-1] > last)
