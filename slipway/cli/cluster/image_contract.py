"""What Slipway assumes about images, each with a command that confirms it on a machine with the image. Data only."""

from dataclasses import dataclass
from typing import Literal

Image = Literal["trtllm", "vllm", "tasks-gpu-trtllm", "tasks-gpu-vllm", "tasks-modelopt", "triton-multinode"]
"""An image of the vendor, or one built from images/."""

VENDORS: frozenset[Image] = frozenset({"trtllm", "vllm"})


@dataclass(frozen=True)
class Confirmation:
    """A command whose output confirms an assumption, or whose failure refutes it."""

    contract: str
    """A file in tests/contracts, or the name of what is imported or launched."""
    image: Image
    command: str
    gpu: bool
    shows: str


EXAMPLES = "for d in /app/examples /app/tensorrt_llm/examples; do test -d $d/quantization && break; done"
CONTRACTS = (
    Confirmation("trtllm_build.yaml", "trtllm", "trtllm-build --help", gpu=True, shows="flags, choices and defaults"),
    Confirmation(
        "quantize.yaml",
        "trtllm",
        f"{EXAMPLES}; echo $d; python3 $d/quantization/quantize.py --help",
        gpu=True,
        shows="folder of the scripts; flags, choices and defaults",
    ),
    Confirmation(
        "convert_checkpoint.yaml",
        "trtllm",
        f"{EXAMPLES}; for m in llama qwen; do python3 $d/models/core/$m/convert_checkpoint.py --help; done",
        gpu=True,
        shows="flags that both scripts have",
    ),
    Confirmation(
        "hf_lora_convert.yaml",
        "trtllm",
        f"{EXAMPLES}; python3 $d/hf_lora_convert.py --help; "
        "python3 -c 'from tensorrt_llm.lora_manager import LoraManager as m; print(m.LORA_MODULE_IDS)'",
        gpu=True,
        shows="flags and choices; numbers of modules",
    ),
    Confirmation(
        "generate_xgrammar_tokenizer_info.yaml",
        "trtllm",
        f"{EXAMPLES}; python3 $d/generate_xgrammar_tokenizer_info.py --help",
        gpu=True,
        shows="flags",
    ),
    Confirmation(
        "llm_arguments.yaml",
        "tasks-gpu-trtllm",
        'python3 -c "from tensorrt_llm.llmapi import llm_args as a; [print(m.__name__, n, f.default) '
        'for m in (a.TorchLlmArgs, a.KvCacheConfig, a.PeftCacheConfig) for n, f in m.model_fields.items()]"',
        gpu=True,
        shows="fields and defaults of LLM(), of kv_cache_config and of peft_cache_config",
    ),
    Confirmation(
        "tensorrt_llm_llmapi.json",
        "tasks-gpu-trtllm",
        'python3 -c "import inspect, tensorrt_llm as t; [print(inspect.getsource(c)) '
        'for c in (t.LLM, t.SamplingParams, t.llmapi.RequestOutput, t.llmapi.CompletionOutput)]"',
        gpu=True,
        shows="what the model of the llmapi kind calls and reads",
    ),
    Confirmation(
        "tensorrt_llm_openai.yaml",
        "trtllm",
        "python3 -c \"import importlib.metadata as m; print('openai', m.version('openai'))\"; "
        "cd $(python3 -c \"import sysconfig; print(sysconfig.get_path('purelib'))\")/tensorrt_llm; "
        "grep -rn -A12 'from openai' serve",
        gpu=False,
        shows="version of the image's own openai, and the names that TensorRT-LLM imports from it",
    ),
    Confirmation(
        "triton_image_layout.yaml",
        "trtllm",
        "command -v python3; python3 --version; python3 -c 'import site; print(site.getsitepackages())'; "
        "pip list 2>/dev/null | grep -iE '^(torch|tensorrt|tensorrt.llm|numpy|safetensors|transformers) '; "
        "env | grep -E '^(PATH|LD_LIBRARY_PATH|OPAL_PREFIX|NCCL_|PIP_)'; ls -d /opt/amazon/*",
        gpu=False,
        shows="folders of the packages, and the environment that a shell of sshd would lack",
    ),
    Confirmation(
        "template_parameters.yaml",
        "trtllm",
        "grep -rhoE '\\$\\{[a-z_]+\\}' /app/all_models/inflight_batcher_llm/*/config.pbtxt | sort -u",
        gpu=False,
        shows="parameters of the image's own templates",
    ),
    Confirmation(
        "triton_tensorrt_llm_model.json",
        "trtllm",
        "cat /app/all_models/inflight_batcher_llm/tensorrt_llm/config.pbtxt",
        gpu=False,
        shows="inputs and outputs of the backend",
    ),
    Confirmation("tritonserver.yaml", "trtllm", "tritonserver --help", gpu=False, shows="flags and defaults"),
    Confirmation(
        "vllm_engine_arguments.yaml",
        "vllm",
        'python3 -c "import dataclasses, vllm; '
        '[print(f.name, f.default) for f in dataclasses.fields(vllm.AsyncEngineArgs)]"',
        gpu=False,
        shows="fields and defaults of the engine's arguments",
    ),
    Confirmation(
        "vllm_sampling_parameters.yaml",
        "vllm",
        'python3 -c "import vllm; print(*vllm.SamplingParams.__struct_fields__)"',
        gpu=False,
        shows="names of sampling parameters",
    ),
    Confirmation(
        "vllm_engine_arguments.yaml",
        "vllm",
        "cat /opt/tritonserver/backends/vllm/model.py",
        gpu=False,
        shows="inputs, parameters and multi_lora.json of Triton's backend",
    ),
)
"""One for each file. A person compares the output with the file, and corrects the file where they differ."""

STEPS_OF_IMAGE: dict[Image, tuple[str, ...]] = {
    "tasks-gpu-trtllm": (
        *(
            "slipway.tasks.command",
            "slipway.tasks.programs",
            "slipway.tasks.serving.openai_api.process",
            "slipway.tasks.serving.pod.all_reduce",
            "slipway.tasks.serving.pod.await_ranks",
            "slipway.tasks.serving.pod.drain",
            "slipway.tasks.serving.pod.lead",
            "slipway.tasks.steps.quantize",
            "slipway.tasks.steps.build",
            "slipway.tasks.steps.assemble",
        ),
        *(
            "slipway.tasks.steps.fetch_repository",
            "slipway.tasks.engines.trtllm.maker",
            "slipway.tasks.engines.huggingface.llmapi",
        ),
    ),
    "tasks-gpu-vllm": (
        *(
            "slipway.tasks.command",
            "slipway.tasks.programs",
            "slipway.tasks.serving.openai_api.process",
            "slipway.tasks.serving.pod.drain",
            "slipway.tasks.steps.build",
            "slipway.tasks.steps.assemble",
            "slipway.tasks.steps.fetch_repository",
        ),
        "slipway.tasks.engines.huggingface.vllm",
    ),
    "tasks-modelopt": (
        *(
            "slipway.tasks.command",
            "slipway.tasks.programs",
            "slipway.tasks.steps.quantize",
            "slipway.tasks.engines.huggingface.llmapi",
            "slipway.tasks.engines.huggingface.vllm",
        ),
        "slipway.tasks.engines.huggingface.modelopt",
    ),
}
"""Modules of this project that run in an image."""

PACKAGES_OF_STEPS: dict[Image, tuple[str, ...]] = {
    "tasks-gpu-trtllm": (
        *("aiohttp", "blake3", "boto3", "botocore", "croniter", "cryptography", "google.protobuf", "grpc", "jinja2"),
        *("kubernetes", "numpy", "pydantic", "pydantic_core", "s3transfer", "safetensors", "torch", "tritonclient"),
        *("tritonclient.grpc.model_config_pb2", "tritonclient.utils", "typing_extensions", "urllib3", "yaml"),
    ),
    "tasks-gpu-vllm": (
        *("aiohttp", "blake3", "boto3", "botocore", "croniter", "cryptography", "google.protobuf", "grpc", "jinja2"),
        *("pydantic", "pydantic_core", "s3transfer", "safetensors", "tritonclient"),
        *("tritonclient.grpc.model_config_pb2", "tritonclient.utils", "typing_extensions", "urllib3", "yaml"),
    ),
    "tasks-modelopt": (
        *("blake3", "boto3", "botocore", "croniter", "modelopt.torch.export", "modelopt.torch.quantization", "numpy"),
        *("pydantic", "pydantic_core", "s3transfer", "safetensors", "torch", "transformers", "typing_extensions"),
        *("urllib3", "yaml"),
    ),
}
"""Everything else that those modules import, also inside functions. A test compares this with their code."""

PACKAGES_OF_SERVERS: dict[Image, tuple[str, ...]] = {
    "tasks-gpu-trtllm": (
        *("numpy", "yaml", "jinja2", "tokenizers", "tensorrt_llm", "tensorrt_llm.llmapi", "torch"),
        *("tensorrt_llm.commands.build", "tensorrt_llm.executor.request", "tensorrt_llm.lora_manager"),
        "tensorrt_llm.quantization",
    ),
    "tasks-gpu-vllm": (
        *("numpy", "jinja2", "tokenizers"),
        *("vllm", "vllm.engine.arg_utils", "vllm.lora.request", "vllm.sampling_params"),
    ),
}
"""What Triton's Python backend and TensorRT-LLM's tools import by the image's own `python3`: Slipway's models
(model_repository_templates/), quantize.py, convert_checkpoint.py, hf_lora_convert.py, trtllm-build, and Triton's vllm
backend."""


def _imports() -> tuple[Confirmation, ...]:
    steps = [
        Confirmation(
            "imports of the steps",
            image,
            import_command("python", [*modules, *PACKAGES_OF_STEPS[image]]),
            True,
            "nothing",
        )
        for image, modules in STEPS_OF_IMAGE.items()
    ]
    servers = [
        Confirmation("imports of servers and tools", image, import_command("python3", modules), True, "nothing")
        for image, modules in PACKAGES_OF_SERVERS.items()
    ]
    return (*steps, *servers)


def import_command(interpreter: str, modules: list[str] | tuple[str, ...]) -> str:
    """A shell command that imports modules; it fails at the first one that cannot be imported."""
    return f'{interpreter} -c "import {", ".join(modules)}"'


LAUNCH = (
    Confirmation(
        "launch of ranks over nodes",
        "triton-multinode",
        "python3 /etc/slipway-mpi/image_mpi.py",
        gpu=False,
        shows="mpirun, orted and OPAL_PREFIX agree; what sshd sets for orted; libfabric and NCCL plugin of EFA",
    ),
)

CONFIRMATIONS = (*CONTRACTS, *_imports(), *LAUNCH)
