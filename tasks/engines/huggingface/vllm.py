"""Engine kind `vllm`: a checkpoint, as it is or quantized by ModelOpt, and its adapters, in Triton's vllm backend."""

from pathlib import Path
from typing import Any, ClassVar

from typing_extensions import override

from tasks.contracts.errors import InputError
from tasks.contracts.fit.host_cache import GIB, host_cache_bytes
from tasks.contracts.fit.resolution import ResolvedRelease
from tasks.contracts.spec.gpu_formats import TURING
from tasks.contracts.spec.spec import ReleaseSpec
from tasks.contracts.stored.plan import Source, adapter_folder
from tasks.engines.checkpoint.files import CONFIG
from tasks.engines.huggingface.checkpoint_maker import CheckpointMaker, adapter_ranks, checkpoint_values
from tasks.engines.huggingface.checkpoint_planner import CheckpointPlanner, source_format
from tasks.engines.huggingface.lora import vllm_arguments
from tasks.engines.huggingface.speculation import GUESSED_FROM_A_PATH, vllm_eagle3, vllm_mtp, vllm_speculation
from tasks.engines.preflight.adapters import check_adapters
from tasks.engines.preflight.gpu import CHUNKED_PREFILL, COMMON, EAGER, MAX_LORAS, PREFIX_CACHING
from tasks.engines.preflight.hub_metadata import Documents
from tasks.engines.preflight.memory_fit import batched_tokens
from tasks.engines.preflight.model_shape import shape_of
from tasks.engines.preflight.source_formats import BLOCK
from tasks.engines.preflight.speculation import check_speculation

ONLINE = {"fp8_online": {"quantization": "fp8"}}
"""Fields of AsyncEngineArgs by a format that vLLM makes as it loads weights: FP8 with one scale per tensor, and scales
of activations from each batch (Fp8Config.get_quant_method in vllm/model_executor/layers/quantization/fp8.py, at v0.19.0
and v0.24.0, where config.json has no quantization_config)."""

NOT_IN_FLOAT16 = frozenset({"gemma2", "gemma3", "gemma3_text", "glm4", "plamo2"})
"""Values of model_type (vllm/config/model.py, _FLOAT16_NOT_SUPPORTED_MODELS, at v0.19.0, v0.22.1 and v0.24.0)."""

FAIL_ON_TURING = frozenset({"0.22.1"})
"""Versions of vLLM that choose FlashInfer on sm_75, whose prefill kernel cannot be launched there (vllm-project/vllm
pull request 44403: from 0.22.0 on, with FlashInfer 0.6.11; flashinfer-ai/flashinfer issue 3620). 0.19.0 requires 0.6.6;
0.24.0 leaves FlashInfer out there (vllm/v1/attention/backends/flashinfer.py, supports_compute_capability)."""

VOCABULARY_STEP = 64
"""vLLM rounds the vocabulary up to a multiple of this, and every rank holds an equal part (DEFAULT_VOCAB_PADDING_SIZE
and `divide` in vllm/model_executor/layers/vocab_parallel_embedding.py). TensorRT-LLM rounds up to its ranks instead."""


BLOCKED = "fp8 in blocks"
"""The name of a format in gpu_formats.AS_IT_IS. vLLM refuses ranks that divide a block: create_weights of Fp8MoEMethod,
and validate_fp8_block_shape for linear layers (vllm/model_executor/layers/quantization/fp8.py and utils/fp8_utils.py;
vllm-project/vllm issues 17569, 25292 and 54178). Experts are divided over tensor parallel ranks as other layers are."""


class VllmPlanner(CheckpointPlanner):
    """Plans checkpoints and adapters for vLLM."""

    runtime: ClassVar[str] = "vllm"
    options: ClassVar = {
        **COMMON,
        "enforce_eager": EAGER,
        "prefix_caching": PREFIX_CACHING,
        "max_loras": MAX_LORAS,
    }

    @override
    def check(self, release: ResolvedRelease, source: Source, documents: Documents) -> None:
        check_adapters(release.spec, documents)
        _check_chunked_prefill(release.spec)
        _check_path(release.spec)
        version = release.runtime.runtime
        check_speculation(release.spec, documents, eagle3=vllm_eagle3(version), mtp=vllm_mtp(version))
        if release.gpu.facts.architecture in TURING:
            self._refuse_on_turing(release, source, documents)
        _check_vocabulary(release.spec, documents)
        _check_blocks(release.spec, documents)
        super().check(release, source, documents)

    def _refuse_on_turing(self, release: ResolvedRelease, source: Source, documents: Documents) -> None:
        if release.runtime.runtime in FAIL_ON_TURING:
            raise InputError(
                f"vLLM {release.runtime.runtime} of {release.engine_image} chooses an attention kernel on "
                f"{release.gpu.name} that fails there",
                found=f"FlashInfer on {release.gpu.facts.architecture}",
                remedy="Choose an image of Triton 26.07, whose vLLM leaves FlashInfer out there, or a GPU with sm_80 "
                "or later.",
            )
        model_type = documents.get(CONFIG, {}).get("model_type")
        if model_type in NOT_IN_FLOAT16:
            # it would be in float32, which takes twice the memory that plan counts
            raise InputError(
                f"{release.gpu.name} has no bfloat16, and vLLM does not compute {source.repo} in float16, which is "
                "unstable for it",
                found=f"model_type {model_type}",
                remedy="Choose a GPU with sm_80 or later, or another model.",
            )

    @override
    def warnings(self, release: ResolvedRelease, source: Source, documents: Documents) -> tuple[str, ...]:
        warnings, config = super().warnings(release, source, documents), documents[CONFIG]
        if release.gpu.facts.architecture in TURING and "bfloat16" in (config.get("dtype"), config.get("torch_dtype")):
            in_float16 = (
                f"{source.repo} is in bfloat16, which {release.gpu.name} does not have: vLLM computes in float16"
            )
            return (*warnings, in_float16)
        return warnings


def _check_vocabulary(spec: ReleaseSpec, documents: Documents) -> None:
    """Refuse ranks over which vLLM does not divide the vocabulary.

    Raises:
        InputError: the rows that it would divide.
    """
    shape, tensor = shape_of(documents.get(CONFIG, {})), spec.engine.tensor_parallel
    rows = -(-shape.vocabulary // VOCABULARY_STEP) * VOCABULARY_STEP if shape else 0
    if rows % tensor:
        raise InputError(
            f"engine.tensor_parallel {tensor} does not divide the vocabulary of {spec.source.repo}",
            found=f"{rows} rows, rounded up as vLLM does",
            remedy="Choose 1, 2, 4 or 8, or another number that divides them.",
        )


def _check_blocks(spec: ReleaseSpec, documents: Documents) -> None:
    """Refuse ranks that would divide a block of FP8 weights that share a scale.

    Raises:
        InputError: the width of the MLP or of an expert, and ranks that divide it into whole blocks.
    """
    shape, tensor = shape_of(documents.get(CONFIG, {})), spec.engine.tensor_parallel
    named = source_format(documents) if spec.quantization.format == "none" else None
    if shape is None or tensor == 1 or named is None or named[0] != BLOCKED:
        return
    if shape.expert_intermediate and spec.engine.expert_parallel > 1:
        return  # whole experts are shared out
    width, block = shape.expert_intermediate or shape.intermediate, BLOCK[0]
    if width % (tensor * block):
        part = "an expert" if shape.expert_intermediate else "an MLP"
        changes = [f"tensor_parallel {ranks}" for ranks in (1, 2, 4, 8, 16) if not width % (ranks * block)]
        changes += [f"expert_parallel {tensor}, which shares out whole experts"] if shape.expert_intermediate else []
        changes = changes or ["tensor_parallel 1 or pipeline_parallel"]
        raise InputError(
            f"engine.tensor_parallel {tensor} divides blocks of {block} FP8 weights of {spec.source.repo}",
            found=f"{part} of {width}, {width / tensor:g} on each rank",
            expected=f"a multiple of {block} on each rank",
            remedy=f"Choose {', '.join(changes)}.",
        )


class VllmMaker(CheckpointMaker):
    """Makes checkpoints and adapters for vLLM."""

    @override
    def template_values(self, engine_dir: Path, spec: ReleaseSpec) -> dict[str, Any]:
        """Values that build recorded; `options` are further fields of AsyncEngineArgs.

        `loras` maps the name by which requests choose an adapter to its folder below the engine's.
        """
        options, ranks = spec.engine.options, adapter_ranks(engine_dir)
        return {
            **checkpoint_values(engine_dir, spec),
            "loras": {name: adapter_folder(name) for name in ranks},
            "speculation": vllm_speculation(spec),
            "options": {
                "max_num_batched_tokens": batched_tokens(spec),
                "enable_prefix_caching": options.get("prefix_caching", True),
                "enforce_eager": options.get("enforce_eager", False),
                "trust_remote_code": False,
                **ONLINE.get(spec.quantization.format, {}),
                **({"enable_expert_parallel": True} if spec.engine.expert_parallel > 1 else {}),
                **({"enable_chunked_prefill": True} if CHUNKED_PREFILL in options else {}),
                **_host_cache(spec),
                **vllm_arguments(spec, ranks),
            },
        }


def _check_chunked_prefill(spec: ReleaseSpec) -> None:
    """Refuse to switch off what vLLM supports only switched on.

    Raises:
        InputError: chunked_prefill is false. vLLM takes it, and warns that models that generate may then crash or
            answer incorrectly (vllm/engine/arg_utils.py at v0.19.0 and v0.24.0,
            _set_default_chunked_prefill_and_prefix_caching_args).
    """
    if spec.engine.options.get(CHUNKED_PREFILL) is False:
        raise InputError(
            f"engine.options.{CHUNKED_PREFILL} cannot be false for vllm, which does not support models that generate "
            "without it",
            remedy="Remove it, or set it to true, which lets max_num_tokens be lower than max_input_tokens.",
        )


def _host_cache(spec: ReleaseSpec) -> dict[str, float]:
    """The field of AsyncEngineArgs with the GiB that all ranks together keep in the host's memory; empty for none.

    Its default backend is vLLM's own (vllm/config/cache.py at v0.19.0 to v0.27.1, kv_offloading_size).
    """
    size_bytes = spec.engine.ranks * host_cache_bytes(spec)
    return {"kv_offloading_size": size_bytes / GIB} if size_bytes else {}


def _check_path(spec: ReleaseSpec) -> None:
    """Refuse a name of the model, which is part of every path, from which vLLM would guess another method."""
    speculative = spec.engine.speculative
    found = [part for part in GUESSED_FROM_A_PATH if part in f"/{spec.name}/"]
    if speculative is not None and speculative.method in {"mtp", "draft_model"} and found:
        raise InputError(
            f"the name {spec.name} would make vLLM guess tokens by another method than {speculative.method}: vLLM "
            "looks for it in the path of the files",
            found=", ".join(found),
            remedy="Choose another name.",
        )
