"""Engine kind `trt-engine` in pods: TensorRT-LLM's own quantization and builder.

Everything that needs TensorRT-LLM runs as a child process in the serving image, on the GPU product that it will serve
on.
"""

import json
from collections.abc import Callable, Sequence
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

from typing_extensions import override

from slipway.tasks.contracts.errors import InputError
from slipway.tasks.contracts.fit.host_cache import host_cache_bytes
from slipway.tasks.contracts.spec.spec import ReleaseSpec
from slipway.tasks.contracts.stored.plan import lora_folder
from slipway.tasks.engines.checkpoint.calibration_texts import Texts
from slipway.tasks.engines.checkpoint.files import CONFIG, check_weights, read_config, read_object
from slipway.tasks.engines.checkpoint.positions import check_limits
from slipway.tasks.engines.loras import check_lora_weights, loras_in
from slipway.tasks.engines.passthrough import (
    changed_documents,
    chat_template_in,
    link_all,
    link_loras,
    link_readable,
    link_tokenizer,
)
from slipway.tasks.engines.preflight.engine_options import CHUNKED_PREFILL, GUIDED_DECODING, kv_cache_fraction
from slipway.tasks.engines.protocol import EngineMaker
from slipway.tasks.engines.trtllm.commands import (
    LORA_SCRIPT,
    QUANTIZE_SCRIPT,
    VOCABULARY_SCRIPT,
    EngineLora,
    build_command,
    convert_command,
    is_converted,
    quantize_command,
)
from slipway.tasks.engines.trtllm.families import architecture_of, converter_of
from slipway.tasks.engines.trtllm.loras import TRITON_TYPES, cache_settings, convert_loras, engine_lora
from slipway.tasks.engines.trtllm.readback import check_positions, read_engine
from slipway.tasks.engines.trtllm.tool import run_tool
from slipway.tasks.engines.trtllm.vocabulary import describe_vocabulary
from slipway.tasks.serving.rendered.paths import ENGINE_DESCRIPTION, ENGINE_FOLDER, REPOSITORY_ROOT

TENSORRT_LLM = "1.2.1"
"""The version in all images that this kind runs in (slipway/tasks/contracts/engine/triton_releases.py). They share one
TensorRT version too, so an engine runs in any of them."""

EXAMPLES = (Path("/app/examples"), Path("/app/tensorrt_llm/examples"))
"""Where images keep TensorRT-LLM's example scripts: Triton's, and NVIDIA's own release image. The first that
exists is used."""

TRAIN_SPLIT = "train.jsonl"
"""quantize.py reads column `text` with Hugging Face's datasets library, to which a folder with a file of this name is a
dataset with a `train` split."""


def visible_gpus() -> int:
    """How many GPUs this pod was given."""
    import torch

    return torch.cuda.device_count()


def gpu_memory() -> int:
    """Bytes of memory of this pod's first GPU; a pod's GPUs are of one product."""
    import torch

    return int(torch.cuda.get_device_properties(0).total_memory)


class TrtMaker(EngineMaker):
    """Runs TensorRT-LLM's scripts and builder."""

    def __init__(
        self,
        examples: Sequence[Path] = EXAMPLES,
        gpus: Callable[[], int] = visible_gpus,
        memory: Callable[[], int] = gpu_memory,
    ) -> None:
        """`examples`: folders to look for the scripts in; `gpus`, `memory`: number and size of this pod's GPUs."""
        self._examples, self._gpus, self._memory = examples, gpus, memory

    @override
    def quantize(self, checkpoint: Path, spec: ReleaseSpec, out: Path, texts: Texts) -> dict[str, Any]:
        """Quantize, or only convert, to a TensorRT-LLM checkpoint: config.json, a file per rank, and the tokenizer."""
        config = read_config(checkpoint)
        check_limits(spec, config)
        source_bytes = check_weights(checkpoint)
        check_lora_weights(checkpoint, spec)
        with TemporaryDirectory(dir=out.parent) as scratch:
            source = _readable(checkpoint, Path(scratch) / "source")
            command = self._to_checkpoint(source, spec, out, config, texts.calibration, Path(scratch))
            run_tool(command, Path(scratch) / "quantize.log", f"{spec.quantization.format} of {spec.source.model}")
        check_positions(config, out)
        link_tokenizer(checkpoint, out)
        link_loras(checkpoint, out)
        weights = sum(file.stat().st_size for file in out.glob("rank*.safetensors"))
        return {"source_bytes": source_bytes, "weights_bytes": weights}

    @override
    def build(self, checkpoint: Path, spec: ReleaseSpec, out: Path) -> dict[str, Any]:
        """Build one engine per rank, and compare its config.json with the spec."""
        gpus, ranks = self._gpus(), spec.engine.ranks
        if gpus < 1:
            raise InputError(
                "trt-engine builds on the GPU that it serves on, and this pod has none",
                remedy="Run this step on a GPU node.",
            )
        workers = min(gpus, ranks)
        per_node = max(workers, spec.gpus_reached)
        lora = engine_lora(checkpoint, spec)
        with TemporaryDirectory(dir=out.parent) as scratch:
            ready = _with_nodes(checkpoint, Path(scratch) / "checkpoint", per_node)
            cache = Path(scratch) / "timing.cache"
            command = build_command(ready, out, spec, timing_cache=cache, workers=workers, lora=lora)
            run_tool(command, Path(scratch) / "build.log", f"building {ranks} engines")
        description = {
            "kind": spec.engine.kind,
            **read_engine(out, spec, version=TENSORRT_LLM, gpus_per_node=per_node, lora=lora),
            "chat_template": chat_template_in(checkpoint, spec),
            "kv_cache_fraction": kv_cache_fraction(spec),
            **(self._with_adapters(checkpoint, spec, out, lora) if lora else {}),
            **_guided_decoding(spec),
        }
        link_tokenizer(checkpoint, out)
        if GUIDED_DECODING in description:
            describe_vocabulary(self._script(VOCABULARY_SCRIPT), checkpoint, out)
        (out / ENGINE_DESCRIPTION).write_text(json.dumps(description, indent=2, sort_keys=True) + "\n")
        return description

    @override
    def template_values(self, engine_dir: Path, spec: ReleaseSpec) -> dict[str, Any]:
        """Values that build read back; `loras` maps each adapter's name to its folder below the engine's."""
        description = json.loads((engine_dir / ENGINE_DESCRIPTION).read_bytes())
        return {
            "name": spec.name,
            "kind": spec.engine.kind,
            "engine_folder": ENGINE_FOLDER,
            "chat_template": description["chat_template"],
            "chat_template_kwargs": spec.engine.chat_template_kwargs,
            **description["limits"],
            "kv_cache_fraction": description["kv_cache_fraction"],
            "paged_context": description["paged_attention"],
            "chunked_prefill": spec.engine.options.get(CHUNKED_PREFILL) is not False,
            "host_cache_bytes": host_cache_bytes(spec),
            "repository_root": REPOSITORY_ROOT,
            "gpus": list(spec.serving.gpus),
            "versions": description["versions"],
            "loras": {name: lora_folder(name) for name in description.get("adapters", {})},
            "lora_cache": description.get("adapter_cache", {}),
            "lora_type": TRITON_TYPES[description.get("adapter_dtype", "float16")],
            GUIDED_DECODING: description.get(GUIDED_DECODING, ""),
        }

    def _with_adapters(self, checkpoint: Path, spec: ReleaseSpec, out: Path, lora: EngineLora) -> dict[str, Any]:
        """Convert the adapters, and describe them."""
        config = read_object(checkpoint / CONFIG)
        dtype = str(config.get("dtype"))
        convert_loras(self._script(LORA_SCRIPT), checkpoint, spec, out, dtype)
        return {
            "adapters": loras_in(checkpoint, spec),
            "adapter_modules": list(lora.modules),
            "adapter_dtype": dtype,
            "adapter_cache": cache_settings(spec, lora, config, sorted(out.glob("rank*.engine")), self._memory()),
        }

    def _to_checkpoint(
        self,
        checkpoint: Path,
        spec: ReleaseSpec,
        out: Path,
        config: dict[str, Any],
        calibration: Sequence[str],
        scratch: Path,
    ) -> list[str]:
        if is_converted(spec):
            converter = converter_of(architecture_of(config))
            dtype = str(config.get("dtype") or config.get("torch_dtype") or "float16")
            script = self._script(converter.script)
            return convert_command(converter, script, checkpoint, out, spec, dtype=dtype)
        texts = _dataset(calibration, scratch / "texts") if calibration else None
        script = self._script(QUANTIZE_SCRIPT)
        return quantize_command(script, checkpoint, out, spec, calibration=texts, samples=len(calibration))

    def _script(self, name: str) -> Path:
        for folder in self._examples:
            if (folder / name).is_file():
                return folder / name
        raise InputError(
            f"TensorRT-LLM's {name} is missing",
            expected=f"a file in one of {', '.join(map(str, self._examples))}",
            remedy="Run this step in an image of Triton with TensorRT-LLM 1.2.",
        )


def _guided_decoding(spec: ReleaseSpec) -> dict[str, str]:
    options = spec.engine.options
    return {GUIDED_DECODING: str(options[GUIDED_DECODING])} if GUIDED_DECODING in options else {}


def _readable(checkpoint: Path, folder: Path) -> Path:
    """The checkpoint, or links to its files and documents that TensorRT-LLM's transformers reads correctly."""
    if not changed_documents(checkpoint):
        return checkpoint
    folder.mkdir()
    link_readable(checkpoint, folder)
    return folder


def _dataset(texts: Sequence[str], folder: Path) -> Path:
    folder.mkdir()
    lines = (json.dumps({"text": text}) + "\n" for text in texts)
    (folder / TRAIN_SPLIT).write_text("".join(lines), encoding="utf-8")
    return folder


def _with_nodes(checkpoint: Path, ready: Path, gpus_per_node: int) -> Path:
    """Link the checkpoint with the true number of GPUs per node in its config; the tools write 8.

    Ranks find their neighbours by it, and the runtime refuses a device id at or above it, or more ids than it
    (cpp/tensorrt_llm/runtime/worldConfig.cpp, in every version that was checked).
    """
    ready.mkdir()
    config = read_object(checkpoint / CONFIG)
    config["mapping"] = {**config.get("mapping", {}), "gpus_per_node": gpus_per_node}
    link_all(checkpoint, ready, leave={CONFIG})
    (ready / CONFIG).write_text(json.dumps(config, indent=2) + "\n")
    return ready
