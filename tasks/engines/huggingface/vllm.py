"""Engine kind `vllm`: a checkpoint, as it is or quantized by ModelOpt, and its adapters, in Triton's vllm backend."""

from pathlib import Path
from typing import Any, ClassVar

from typing_extensions import override

from tasks.contracts.plan import Source, adapter_folder
from tasks.contracts.resolution import ResolvedRelease
from tasks.contracts.spec import ReleaseSpec
from tasks.engines.huggingface.checkpoint_maker import CheckpointMaker, adapter_ranks, checkpoint_values
from tasks.engines.huggingface.checkpoint_planner import CheckpointPlanner
from tasks.engines.huggingface.lora import adapter_arguments
from tasks.engines.preflight.adapters import check_adapters
from tasks.engines.preflight.gpu import COMMON, EAGER, MAX_LORAS, PREFIX_CACHING
from tasks.engines.preflight.hub_metadata import Documents
from tasks.engines.preflight.memory_fit import batched_tokens


class VllmPlanner(CheckpointPlanner):
    """Plans checkpoints and adapters for vLLM."""

    runtime: ClassVar[str] = "vllm"
    options: ClassVar = {
        # Triton's backend passes prompts to vLLM unchanged
        **{name: option for name, option in COMMON.items() if name != "chat_template"},
        "enforce_eager": EAGER,
        "prefix_caching": PREFIX_CACHING,
        "max_loras": MAX_LORAS,
    }

    @override
    def check(self, release: ResolvedRelease, source: Source, documents: Documents) -> None:
        check_adapters(release.spec, documents)
        super().check(release, source, documents)


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
            "options": {
                "max_num_batched_tokens": batched_tokens(spec),
                "enable_prefix_caching": options.get("prefix_caching", True),
                "enforce_eager": options.get("enforce_eager", False),
                "trust_remote_code": False,
                **adapter_arguments(spec, ranks),
            },
        }
