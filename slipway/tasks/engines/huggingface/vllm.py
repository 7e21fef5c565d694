"""Engine kind `vllm`: a checkpoint, as it is or quantized by ModelOpt, and its adapters, in vLLM."""

from collections.abc import Mapping
from pathlib import Path
from typing import Any, ClassVar

from typing_extensions import override

from slipway.tasks.contracts.engine.engine_kinds import NEWEST_VLLM, ROOM
from slipway.tasks.contracts.errors import InputError
from slipway.tasks.contracts.fit.host_cache import GIB, HOST_CACHE, host_cache_bytes
from slipway.tasks.contracts.fit.resolution import ResolvedRelease
from slipway.tasks.contracts.site.triton_images import STATED_IMAGES
from slipway.tasks.contracts.spec.gpu_formats import DATA_CENTRE_BLACKWELL, HOPPER, TURING
from slipway.tasks.contracts.spec.spec import ReleaseSpec
from slipway.tasks.contracts.stored.plan import Source, lora_folder
from slipway.tasks.engines.checkpoint.calibration_texts import Texts
from slipway.tasks.engines.checkpoint.config_defaults import completed
from slipway.tasks.engines.checkpoint.files import CONFIG, INDEX, WHOLE, read_config, read_object
from slipway.tasks.engines.checkpoint.lora_tensors import shapes_in
from slipway.tasks.engines.checkpoint.quant_algo import QUANT_ALGO
from slipway.tasks.engines.huggingface.checkpoint_maker import CheckpointMaker, checkpoint_values, lora_ranks
from slipway.tasks.engines.huggingface.checkpoint_planner import CheckpointPlanner, check_quantizable
from slipway.tasks.engines.huggingface.lora import vllm_arguments
from slipway.tasks.engines.huggingface.speculation import GUESSED_FROM_A_PATH, vllm_eagle3, vllm_mtp, vllm_speculation
from slipway.tasks.engines.preflight.engine_options import CHUNKED_PREFILL
from slipway.tasks.engines.preflight.fused_layers import check_fused_layers, rules_of
from slipway.tasks.engines.preflight.hub_metadata import (
    QUANTIZED_BY_MODELOPT,
    Documents,
    modelopt_algorithm,
    stated_quantization,
)
from slipway.tasks.engines.preflight.known_classes import architectures_of
from slipway.tasks.engines.preflight.layer_kinds import CACHING
from slipway.tasks.engines.preflight.loras import check_loras
from slipway.tasks.engines.preflight.memory_fit import batched_tokens
from slipway.tasks.engines.preflight.model_shape import shape_of
from slipway.tasks.engines.preflight.source_formats import block_of, group_of
from slipway.tasks.engines.preflight.speculation import check_speculation
from slipway.tasks.engines.preflight.unpacked_layers import check_unpacked_layers
from slipway.tasks.engines.upstream.tables import table_of

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


SPARSE_ATTENTION = (*HOPPER, *DATA_CENTRE_BLACKWELL)
"""GPUs that have a kernel for attention over the entries that an indexer chooses (supports_compute_capability of
vllm/v1/attention/backends/mla/flashmla_sparse.py at v0.19.0 to v0.27.1: 9 and 10)."""

LOSES_STATE = "0.25.1"
"""Last version of vLLM whose cache in host memory ends the engine of a hybrid at the first hit (vllm-project/vllm
issues 41515, 42554 and 50454)."""

KEEPS_ADAPTERS_APART = "0.27.1"
"""First vLLM of an image that looks at the slots of adapters again when only these have changed (_last_slot_layout in
vllm/lora/model_manager.py; vllm-project/vllm issue 47724 and pull request 47725, merged after 0.24.0). Before it, an
adapter that is loaded while requests run may have them answered with another adapter's weights."""


class VllmPlanner(CheckpointPlanner):
    """Plans checkpoints and adapters for vLLM."""

    runtime: ClassVar[str] = "vllm"

    @override
    def check(self, release: ResolvedRelease, source: Source, documents: Documents) -> None:
        check_loras(release.spec, documents)
        _check_chunked_prefill(release.spec)
        _check_path(release.spec)
        version = release.runtime.runtime
        check_speculation(release.spec, documents, eagle3=vllm_eagle3(version), mtp=vllm_mtp(version))
        if release.gpu.facts.architecture in TURING:
            self._refuse_on_turing(release, source, documents)
        _check_vocabulary(release.spec, documents)
        _check_groups(release.spec, documents)
        _check_blocks_of_heads(release.spec, documents)
        if release.spec.quantization.format == "none":
            beside = documents.get(QUANTIZED_BY_MODELOPT)
            config, stated = documents.get(CONFIG, {}), stated_quantization(documents)
            check_fused_layers(config, stated, version, source.name, beside)
            check_unpacked_layers(config, stated, documents.get(INDEX, {}).get("weight_map"), version, source.name)
        _check_room(release)
        _check_state(release, source, documents)
        _check_sparse_attention(release, source, documents)
        _check_tied(release, source, documents)
        super().check(release, source, documents)

    def _refuse_on_turing(self, release: ResolvedRelease, source: Source, documents: Documents) -> None:
        if release.runtime.runtime in FAIL_ON_TURING:
            raise InputError(
                f"vLLM {release.runtime.runtime} of {release.engine_image} chooses an attention kernel on "
                f"{release.gpu.name} that fails there",
                found=f"FlashInfer on {release.gpu.facts.architecture}",
                remedy="Choose an image of Triton 26.07 or later, whose vLLM leaves FlashInfer out there, or a GPU "
                "with sm_80 or later.",
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
            f"engine.tensor_parallel {tensor} does not divide the vocabulary of {spec.source.model}",
            found=f"{rows} rows, rounded up as vLLM does",
            remedy="Choose 1, 2, 4 or 8, or another number that divides them.",
        )


def _check_room(release: ResolvedRelease) -> None:
    """Refuse room for adapters of the live model where loading one disturbs the requests of others.

    Raises:
        InputError: the version of vLLM.
    """
    version = release.runtime.runtime
    if release.spec.engine.room_rank and version_of(version) < version_of(KEEPS_ADAPTERS_APART):
        releases = (STATED_IMAGES["vllm", each] for each in release.spec.engine.traits.triton_releases)
        later = [each.release for each in releases if version_of(each.runtime) >= version_of(KEEPS_ADAPTERS_APART)]
        raise InputError(
            f"engine.options.{ROOM} has vLLM load adapters while requests run, and vLLM {version} of "
            f"{release.engine_image} may then answer these with another adapter's weights",
            expected=f"vLLM {KEEPS_ADAPTERS_APART} or later",
            remedy=f"Choose an image of Triton {', '.join(later)}, or remove {ROOM} and name adapters in engine.lora.",
        )


def _check_state(release: ResolvedRelease, source: Source, documents: Documents) -> None:
    """Refuse a cache in host memory for a model that keeps a state besides keys and values.

    Raises:
        InputError: the version of vLLM.
    """
    if HOST_CACHE not in release.spec.engine.options or not _is_hybrid(documents.get(CONFIG, {})):
        return
    if version_of(release.runtime.runtime) <= version_of(LOSES_STATE):
        raise InputError(
            f"engine.options.{HOST_CACHE} ends the engine of {source.repo} at the first prompt found there: some "
            "layers of the model keep a state, which vLLM does not store with the cache",
            found=f"vLLM {release.runtime.runtime}",
            expected=f"one after {LOSES_STATE}",
            remedy=f"Remove {HOST_CACHE}.",
        )


def _is_hybrid(config: Mapping[str, Any]) -> bool:
    """Whether vLLM counts a model as hybrid: by its class, unless all layers are attention (vllm/config/model.py)."""
    classes = (table_of("vllm", NEWEST_VLLM) or {}).get("hybrid", ())
    if any(each in classes for each in architectures_of(config)):
        types = completed(config).get("layer_types")
        return not isinstance(types, list) or not all(each in CACHING for each in types)
    shape = shape_of(config)
    return shape is not None and shape.hybrid


def version_of(text: str) -> tuple[int, ...]:
    """A release number to compare."""
    return tuple(int(part) for part in text.split(".") if part.isdecimal())


def _check_sparse_attention(release: ResolvedRelease, source: Source, documents: Documents) -> None:
    """Refuse GPUs without a kernel for sparse attention.

    Raises:
        InputError: the GPU's architecture, and those that have one.
    """
    shape, architecture = shape_of(documents.get(CONFIG, {})), release.gpu.facts.architecture
    if shape is not None and shape.sparse and architecture not in SPARSE_ATTENTION:
        raise InputError(
            f"vLLM {release.runtime.runtime} has no kernel for sparse attention, which {source.repo} has, on "
            f"{release.gpu.name}",
            found=architecture,
            expected=f"one of {', '.join(SPARSE_ATTENTION)}",
            remedy="Choose a GPU with one of these.",
        )


def _check_tied(release: ResolvedRelease, source: Source, documents: Documents) -> None:
    """Refuse what ModelOpt quantized, where vLLM leaves it to ModelOpt's method to share the embeddings with the head.

    Of vLLM 0.24.0 alone: vllm-project/vllm issue 45543, and seen there on an H100.

    Raises:
        InputError: the version of vLLM.
    """
    spec, version = release.spec, release.runtime.runtime
    by_modelopt = QUANT_ALGO.get(spec.quantization.format) or modelopt_algorithm(documents)
    shape, untied = shape_of(documents.get(CONFIG, {})), (table_of("vllm", version) or {}).get("untied", ())
    if not by_modelopt or shape is None or not shape.tied:
        return
    if any(name in untied for name in architectures_of(documents.get(CONFIG, {}))):
        if spec.changes_weights:
            check_quantizable(release, source, documents)  # what no image would help is said first
        releases = (STATED_IMAGES["vllm", each] for each in spec.engine.traits.triton_releases)
        others = [each.release for each in releases if each.runtime != version]
        raise InputError(
            f"vLLM {version} of {release.engine_image} cannot load {source.repo} as ModelOpt quantizes it: its head "
            "shares the weights of its embeddings",
            found="tie_word_embeddings true",
            remedy=f"Choose an image of Triton {', '.join(others)}, or quantization.format none or fp8_online.",
        )


def _check_groups(spec: ReleaseSpec, documents: Documents) -> None:
    """Refuse ranks that would divide a group or a block of weights that share a scale.

    Raises:
        InputError: the width of the MLP or of an expert, and ranks that divide it into whole groups.
    """
    shape, tensor = shape_of(documents.get(CONFIG, {})), spec.engine.tensor_parallel
    stated = stated_quantization(documents) if spec.quantization.format == "none" else None
    if shape is None or tensor == 1 or not isinstance(stated, Mapping):
        return
    if shape.expert_intermediate and spec.engine.expert_parallel > 1:
        return  # whole experts are shared out
    width, group = shape.expert_intermediate or shape.intermediate, group_of(stated)
    if group > 1 and width % (tensor * group):
        part = "an expert" if shape.expert_intermediate else "an MLP"
        changes = [f"tensor_parallel {ranks}" for ranks in (1, 2, 4, 8, 16) if not width % (ranks * group)]
        changes += [f"expert_parallel {tensor}, which shares out whole experts"] if shape.expert_intermediate else []
        changes = changes or ["tensor_parallel 1 or pipeline_parallel"]
        raise InputError(
            f"engine.tensor_parallel {tensor} divides groups of {group} weights with one scale in {spec.source.model}",
            found=f"{part} of {width}, {width / tensor:g} on each rank",
            expected=f"a multiple of {group} on each rank",
            remedy=f"Choose {', '.join(changes)}.",
        )


def _check_blocks_of_heads(spec: ReleaseSpec, documents: Documents) -> None:
    """Refuse ranks whose part of the queries or keys is no whole number of blocks, which vLLM compares as it starts.

    validate_fp8_block_shape of vllm/model_executor/layers/quantization/utils/fp8_utils.py, at v0.24.0
    (vllm-project/vllm issue 52997). Models whose layers differ, or whose keys are latent, are not judged.

    Raises:
        InputError: the sizes on each rank.
    """
    shape, tensor = shape_of(documents.get(CONFIG, {})), spec.engine.tensor_parallel
    stated = stated_quantization(documents) if spec.quantization.format == "none" else None
    if shape is None or not isinstance(stated, Mapping) or (block := block_of(stated)) == 1:
        return
    kinds = {(each.kv_heads, each.head_dim, each.latent) for each in shape.caches if each is not None}
    if len(kinds) != 1 or shape.caches[0] is None or shape.caches[0].latent or _leaves_out_attention(stated):
        return
    sizes = {
        ranks: (shape.heads * shape.head_dim // ranks, max(1, shape.kv_heads // ranks) * shape.head_dim)
        for ranks in (1, 2, 4, 8, 16)
    }
    own = sizes.get(tensor, (0, 0))
    if any(size % block for size in own):
        others = [
            f"tensor_parallel {ranks}" for ranks, found in sizes.items() if not any(size % block for size in found)
        ]
        raise InputError(
            f"engine.tensor_parallel {tensor} divides blocks of {block} rows with one scale in the attention of "
            f"{spec.source.model}",
            found=f"{own[0]} rows of queries and {own[1]} of keys on each rank",
            expected=f"multiples of {block}",
            remedy=f"Choose {', '.join(others) or 'a checkpoint in another format'}.",
        )


def _leaves_out_attention(stated: Mapping[str, Any]) -> bool:
    """Whether some attention is not in blocks, or what is left out cannot be told."""
    rules = list(rules_of(stated))
    return not rules or any("attn" in name or "attention" in name for rule in rules for name in rule.names)


class VllmMaker(CheckpointMaker):
    """Makes checkpoints and adapters for vLLM."""

    @override
    def quantize(self, checkpoint: Path, spec: ReleaseSpec, out: Path, texts: Texts) -> dict[str, Any]:
        """Check what plan could not, as a checkpoint in one file has no index, and do what the base does."""
        if not spec.changes_weights and (checkpoint / WHOLE).is_file():
            config, what = read_config(checkpoint), "the checkpoint"
            names = shapes_in(checkpoint / WHOLE, what)
            check_unpacked_layers(config, stated_quantization({CONFIG: config}), names, NEWEST_VLLM, what)
        return super().quantize(checkpoint, spec, out, texts)

    @override
    def template_values(self, engine_dir: Path, spec: ReleaseSpec) -> dict[str, Any]:
        """Values that build recorded; `options` are further fields of AsyncEngineArgs.

        `loras` maps the name by which requests choose an adapter to its folder below the engine's.
        """
        options, ranks = spec.engine.options, lora_ranks(engine_dir)
        return {
            **checkpoint_values(engine_dir, spec),
            "loras": {name: lora_folder(name) for name in ranks},
            "lora_room": spec.engine.room_rank > 0,
            "speculation": vllm_speculation(spec),
            "options": {
                "max_num_batched_tokens": batched_tokens(spec),
                **_prefix_caching(engine_dir, spec),
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


def _prefix_caching(engine_dir: Path, spec: ReleaseSpec) -> dict[str, bool]:
    """The field of AsyncEngineArgs for prompts that begin alike; empty for a hybrid whose spec leaves it open.

    vLLM has it on for models with keys and values alone, and calls it experimental for hybrids (vllm/config/model.py,
    is_prefix_caching_supported, at v0.24.0).
    """
    stated = spec.engine.options.get("prefix_caching")
    if stated is None and _is_hybrid(read_object(engine_dir / CONFIG) if (engine_dir / CONFIG).is_file() else {}):
        return {}
    return {"enable_prefix_caching": stated is not False}


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
