"""Engine kind `trt-engine`: TensorRT-LLM's own quantization and builder, served by Triton's tensorrtllm backend.

Everything that needs TensorRT-LLM runs as a child process in the serving image, on the GPU product that it will serve
on.
"""

import json
from collections.abc import Callable, Sequence
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

from tasks.contracts.artifact import Stage
from tasks.contracts.compatibility import image_of
from tasks.contracts.errors import InputError
from tasks.contracts.plan import Estimate, Source
from tasks.contracts.site import Site
from tasks.contracts.spec import EngineKind, ReleaseSpec
from tasks.engines.announced import Documents
from tasks.engines.checkpoint import CONFIG, check_limits, check_weights, read_config, read_object
from tasks.engines.gpu_options import COMMON, check_gpu_engine, check_options, gpu_of, kv_cache_fraction
from tasks.engines.memory import BITS, GIB, bytes_on_gpus, weights_bytes
from tasks.engines.protocol import ENGINE_DESCRIPTION, ENGINE_FOLDER, REPOSITORY_ROOT
from tasks.engines.served_files import chat_template_in, link_all, link_tokenizer
from tasks.engines.tool import run_tool
from tasks.engines.trt_commands import QUANTIZE_SCRIPT, build_command, convert_command, converter_of, quantize_command
from tasks.engines.trt_readback import read_engine

TENSORRT_LLM = "1.2.1"
"""Of all images that this kind runs in (tasks/contracts/compatibility.py), which hold one TensorRT too: an engine
runs in any of them."""

EXAMPLES = (Path("/app/examples"), Path("/app/tensorrt_llm/examples"))
"""Where images keep TensorRT-LLM's example scripts: Triton's, and NVIDIA's own release image. The first that is
there."""

TOOLKIT_BYTES = 8 * GIB
"""Host memory of a process with CUDA, PyTorch and TensorRT-LLM, and of what TensorRT holds while it builds: an
allowance."""

TRAIN_SPLIT = "train.jsonl"
"""A folder with a file of this name is a data set with a `train` split to Hugging Face's datasets library, which
quantize.py reads its texts with, from the column `text`."""


def visible_gpus() -> int:
    """How many GPUs this pod was given."""
    import torch

    return torch.cuda.device_count()


class TrtEngine:
    """See tasks/engines/protocol.py for what each method promises."""

    kind: EngineKind = "trt-engine"

    def __init__(self, examples: Sequence[Path] = EXAMPLES, gpus: Callable[[], int] = visible_gpus) -> None:
        """`examples`: folders to look for the scripts in; `gpus`: how many GPUs this pod has."""
        self._examples, self._gpus = examples, gpus

    def producers(self, spec: ReleaseSpec, site: Site, serving_image: str) -> dict[Stage, dict[str, str]]:
        """Image, TensorRT-LLM, TensorRT and GPU architecture; and the ranks, which quantize splits weights for."""
        image, (_, gpu) = image_of(serving_image, self.kind), gpu_of(spec, site)
        tools = {
            "image": serving_image,
            "tensorrt_llm": image.runtime,
            "tensorrt": image.tensorrt or "",
            "gpu_architecture": gpu.architecture,
            "ranks": f"tp{spec.engine.tensor_parallel} pp{spec.engine.pipeline_parallel}",
        }
        return {"quantize": tools, "build": tools, "assemble": {"image": serving_image}}

    def check(self, spec: ReleaseSpec, site: Site, source: Source, documents: Documents) -> None:
        """Refuse what cannot be quantized, built, or held by the GPUs."""
        check_options(spec, COMMON)
        checked = check_gpu_engine(spec, site, source, documents, self.check)
        if checked.quantized:
            raise InputError(
                f"{source.repo}@{source.revision} is quantized already; trt-engine makes its own from 16-bit weights. "
                "Choose the unquantized model, or the engine kinds llmapi or vllm, which serve it as it is."
            )
        if _is_converted(spec):
            converter_of(str((documents[CONFIG].get("architectures") or ["none"])[0]))
        if spec.gate.quality is not None and spec.gate.quality.perplexity is not None:
            raise InputError(
                "gate.quality.perplexity: trt-engine has no logits to measure it on before it is served. Remove it; "
                "gate.quality.dataset measures answers of the release itself."
            )
        if checked.nodes > 1 and spec.serving.image is not None:
            raise InputError(
                f"serving.image {spec.serving.image}: the release takes {checked.nodes} nodes, whose pods start each "
                "other's ranks by the sshd of the site's images.multinode. Remove serving.image, or name an image made "
                "from images/triton-multinode as images.multinode of the site."
            )
        if checked.nodes > 1 and site.images.multinode is not None:
            image_of(site.images.multinode, self.kind)

    def estimate(self, spec: ReleaseSpec, source: Source) -> Estimate:
        """Of quantize: source and result lie on disk together, and the result passes through the host's memory.

        Weights that keep their precision are read and split by the host: source and one copy. The source of others is
        on GPUs.
        """
        weights = weights_bytes(source)
        result = int(weights * BITS[spec.quantization.format] / BITS["none"]) + weights // 8
        held = 2 * weights if _is_converted(spec) else result
        return Estimate(
            download_bytes=source.size_bytes,
            scratch_bytes=source.size_bytes + 2 * result,
            memory_bytes=TOOLKIT_BYTES + held,
            gpu_bytes=bytes_on_gpus(spec, source),
        )

    def quantize(
        self,
        checkpoint: Path,
        spec: ReleaseSpec,
        out: Path,
        *,
        calibration: Sequence[str],
        perplexity_texts: Sequence[str],
    ) -> dict[str, Any]:
        """Quantize, or only convert, to a TensorRT-LLM checkpoint: config.json, a file per rank, and the tokenizer."""
        del perplexity_texts
        config = read_config(checkpoint)
        check_limits(config, spec)
        source_bytes = check_weights(checkpoint)
        with TemporaryDirectory(dir=out.parent) as scratch:
            command = self._to_checkpoint(checkpoint, spec, out, config, calibration, Path(scratch))
            run_tool(command, Path(scratch) / "quantize.log", f"{spec.quantization.format} of {spec.source.repo}")
        link_tokenizer(checkpoint, out)
        weights = sum(file.stat().st_size for file in out.glob("rank*.safetensors"))
        return {"source_bytes": source_bytes, "weights_bytes": weights}

    def build(self, checkpoint: Path, spec: ReleaseSpec, out: Path) -> dict[str, Any]:
        """Build one engine per rank, and compare what its config.json says with what was asked."""
        gpus, ranks = self._gpus(), spec.engine.tensor_parallel * spec.engine.pipeline_parallel
        if gpus < 1:
            raise InputError(
                "trt-engine builds on the GPU that it serves on, and this pod sees none. Run it on a GPU node."
            )
        per_node = min(gpus, ranks)
        with TemporaryDirectory(dir=out.parent) as scratch:
            ready = _with_nodes(checkpoint, Path(scratch) / "checkpoint", per_node)
            cache = Path(scratch) / "timing.cache"
            command = build_command(ready, out, spec, timing_cache=cache, workers=per_node)
            run_tool(command, Path(scratch) / "build.log", f"building {ranks} engines")
        description = {
            "kind": self.kind,
            **read_engine(out, spec, version=TENSORRT_LLM, gpus_per_node=per_node),
            "chat_template": chat_template_in(checkpoint, spec),
            "kv_cache_fraction": kv_cache_fraction(spec),
        }
        link_tokenizer(checkpoint, out)
        (out / ENGINE_DESCRIPTION).write_text(json.dumps(description, indent=2, sort_keys=True) + "\n")
        return description

    def template_values(self, engine_dir: Path, spec: ReleaseSpec) -> dict[str, Any]:
        """Everything from what build read back."""
        description = json.loads((engine_dir / ENGINE_DESCRIPTION).read_bytes())
        return {
            "name": spec.name,
            "kind": self.kind,
            "engine_folder": ENGINE_FOLDER,
            "chat_template": description["chat_template"],
            **description["limits"],
            "kv_cache_fraction": description["kv_cache_fraction"],
            "paged_context": description["paged_attention"],
            "repository_root": REPOSITORY_ROOT,
            "gpus": list(spec.serving.gpus),
            "versions": description["versions"],
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
        if _is_converted(spec):
            return convert_command(self._script(converter_of(config["architectures"][0])), checkpoint, out, spec)
        texts = _data_set(calibration, scratch / "texts") if calibration else None
        script = self._script(QUANTIZE_SCRIPT)
        return quantize_command(script, checkpoint, out, spec, calibration=texts, samples=len(calibration))

    def _script(self, name: str) -> Path:
        for folder in self._examples:
            if (folder / name).is_file():
                return folder / name
        raise InputError(
            f"TensorRT-LLM's {name} is in none of {', '.join(map(str, self._examples))}. Run this step in an image of "
            "Triton with TensorRT-LLM 1.2."
        )


def _is_converted(spec: ReleaseSpec) -> bool:
    return spec.quantization.format == "none" and spec.quantization.kv_cache == "none"


def _data_set(texts: Sequence[str], folder: Path) -> Path:
    folder.mkdir()
    lines = (json.dumps({"text": text}) + "\n" for text in texts)
    (folder / TRAIN_SPLIT).write_text("".join(lines), encoding="utf-8")
    return folder


def _with_nodes(checkpoint: Path, ready: Path, gpus_per_node: int) -> Path:
    """The checkpoint with the true number of GPUs per node, by which ranks find their neighbours; the tools write 8."""
    ready.mkdir()
    config = read_object(checkpoint / CONFIG)
    config["mapping"] = {**config.get("mapping", {}), "gpus_per_node": gpus_per_node}
    link_all(checkpoint, ready, leave=CONFIG)
    (ready / CONFIG).write_text(json.dumps(config, indent=2) + "\n")
    return ready
