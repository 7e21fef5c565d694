"""Engine kind `llmapi`: a checkpoint quantized by ModelOpt, and its adapters, loaded by TensorRT-LLM's LLM API.

Nothing is built.
"""

from pathlib import Path
from typing import Any, ClassVar

from typing_extensions import override

from slipway.tasks.contracts.fit.host_cache import host_cache_bytes
from slipway.tasks.contracts.fit.resolution import ResolvedRelease
from slipway.tasks.contracts.spec.spec import ReleaseSpec
from slipway.tasks.contracts.stored.plan import Source, lora_folder
from slipway.tasks.engines.checkpoint.files import read_object
from slipway.tasks.engines.huggingface.checkpoint_maker import CheckpointMaker, checkpoint_values, lora_ranks
from slipway.tasks.engines.huggingface.checkpoint_planner import CheckpointPlanner
from slipway.tasks.engines.huggingface.lora import llm_api_arguments
from slipway.tasks.engines.huggingface.speculation import LLMAPI_EAGLE3, LLMAPI_MTP, llm_api_speculation
from slipway.tasks.engines.preflight.engine_options import (
    CHUNKED_PREFILL,
    GUIDED_DECODING,
    check_host_cache,
)
from slipway.tasks.engines.preflight.hub_metadata import TOKENIZER_CONFIG, Documents
from slipway.tasks.engines.preflight.known_classes import check_tokenizer_class
from slipway.tasks.engines.preflight.loras import check_loras
from slipway.tasks.engines.preflight.memory_fit import batched_tokens
from slipway.tasks.engines.preflight.speculation import check_speculation
from slipway.tasks.serving.rendered.paths import ENGINE_DESCRIPTION


class LlmApiPlanner(CheckpointPlanner):
    """Plans checkpoints and adapters for the LLM API."""

    runtime: ClassVar[str] = "tensorrt_llm"

    @override
    def check(self, release: ResolvedRelease, source: Source, documents: Documents) -> None:
        check_loras(release.spec, documents)
        check_speculation(release.spec, documents, eagle3=LLMAPI_EAGLE3, mtp=LLMAPI_MTP)
        super().check(release, source, documents)
        if GUIDED_DECODING in release.spec.engine.options:
            what = f"{source.name}"
            check_tokenizer_class(documents.get(TOKENIZER_CONFIG, {}), release.runtime, what)
        check_host_cache(release.spec, shares_cache=release.spec.engine.options.get("prefix_caching") is not False)


class LlmApiMaker(CheckpointMaker):
    """Makes checkpoints and adapters for the LLM API."""

    names_modules: ClassVar[bool] = True

    @override
    def template_values(self, engine_dir: Path, spec: ReleaseSpec) -> dict[str, Any]:
        """Values that build recorded; `options` are further fields of LLM().

        `loras` maps the name by which requests choose an adapter to its folder below the engine's.
        """
        ranks = lora_ranks(engine_dir)
        modules = read_object(engine_dir / ENGINE_DESCRIPTION).get("adapter_modules", [])
        return {
            **checkpoint_values(engine_dir, spec),
            "prefix_caching": spec.engine.options.get("prefix_caching", True),
            "loras": {name: lora_folder(name) for name in ranks},
            "host_cache_bytes": host_cache_bytes(spec),
            "options": {
                "max_num_tokens": batched_tokens(spec),
                "trust_remote_code": False,
                **expert_arguments(spec),
                **chunked_prefill_argument(spec),
                **llm_api_speculation(spec),
                **llm_api_arguments(spec, ranks, modules),
                **guided_decoding_argument(spec),
            },
        }


def chunked_prefill_argument(spec: ReleaseSpec) -> dict[str, bool]:
    """The field of LLM() that lets prompts be computed in several steps; empty where the spec leaves it open."""
    chunked = spec.engine.options.get(CHUNKED_PREFILL)
    return {} if chunked is None else {"enable_chunked_prefill": bool(chunked)}


def guided_decoding_argument(spec: ReleaseSpec) -> dict[str, str]:
    """The field of LLM() that enables guided decoding; empty where the spec does not."""
    options = spec.engine.options
    return {GUIDED_DECODING: str(options[GUIDED_DECODING])} if GUIDED_DECODING in options else {}


def expert_arguments(spec: ReleaseSpec) -> dict[str, Any]:
    """Fields of LLM() that say where a mixture's experts and its attention are; empty for the defaults.

    The product of both sizes is tensor_parallel_size (tensorrt_llm/mapping.py at 05ebebb2).
    """
    engine = spec.engine
    arguments: dict[str, Any] = {}
    if engine.expert_parallel > 1:
        arguments["moe_expert_parallel_size"] = engine.expert_parallel
        arguments["moe_tensor_parallel_size"] = engine.tensor_parallel // engine.expert_parallel
    if engine.attention_dp:
        arguments["enable_attention_dp"] = True
    return arguments
