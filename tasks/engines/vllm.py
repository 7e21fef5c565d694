"""Engine kind `vllm`: a checkpoint, as it is or quantized by ModelOpt, and its adapters, by Triton's vllm backend."""

from pathlib import Path
from typing import Any, ClassVar

from tasks.contracts.plan import Source, adapter_folder
from tasks.contracts.site import Site
from tasks.contracts.spec import EngineKind, ReleaseSpec
from tasks.engines.announced import Documents
from tasks.engines.gpu_options import COMMON, EAGER, MAX_LORAS, PREFIX_CACHING
from tasks.engines.hf_checkpoint import CheckpointEngine, adapter_ranks, checkpoint_values
from tasks.engines.lora import adapter_arguments, check_adapters
from tasks.engines.memory import batched_tokens


class VllmEngine(CheckpointEngine):
    """See tasks/engines/protocol.py for what each method promises."""

    kind: EngineKind = "vllm"
    runtime: ClassVar[str] = "vllm"
    options: ClassVar = {
        # Triton's backend gives prompts to vLLM as they are
        **{name: option for name, option in COMMON.items() if name != "chat_template"},
        "enforce_eager": EAGER,
        "prefix_caching": PREFIX_CACHING,
        "max_loras": MAX_LORAS,
    }

    def check(self, spec: ReleaseSpec, site: Site, source: Source, documents: Documents) -> None:
        """Refuse adapters that vLLM cannot serve, and what no checkpoint may ask."""
        check_adapters(spec, documents)
        super().check(spec, site, source, documents)

    def template_values(self, engine_dir: Path, spec: ReleaseSpec) -> dict[str, Any]:
        """From what build wrote down; `options` are further fields of AsyncEngineArgs.

        `loras` is each adapter's folder below the engine's, by the name that requests choose it by.
        """
        asked, ranks = spec.engine.options, adapter_ranks(engine_dir)
        return {
            **checkpoint_values(engine_dir, spec),
            "loras": {name: adapter_folder(name) for name in ranks},
            "options": {
                "max_num_batched_tokens": batched_tokens(spec),
                "enable_prefix_caching": asked.get("prefix_caching", True),
                "enforce_eager": asked.get("enforce_eager", False),
                "trust_remote_code": False,
                **adapter_arguments(spec, ranks),
            },
        }
