"""`slipway doctor`: what a person can look at where Slipway itself cannot."""

import shlex
from dataclasses import dataclass
from typing import Annotated

import typer

from tasks.contracts.compatibility import RELEASES
from tasks.contracts.errors import InputError


@dataclass(frozen=True)
class Confirmation:
    """How a recorded contract is confirmed in an image."""

    contract: str
    """File below tests/contracts."""
    flavour: str
    command: str
    gpu: bool
    shows: str


EXAMPLES = "for d in /app/examples /app/tensorrt_llm/examples; do test -d $d/quantization && break; done"
CONFIRMATIONS = (
    Confirmation("trtllm_build.yaml", "trtllm", "trtllm-build --help", gpu=True, shows="flags, choices and defaults"),
    Confirmation(
        "quantize.yaml",
        "trtllm",
        f"{EXAMPLES}; echo $d; python3 $d/quantization/quantize.py --help",
        gpu=True,
        shows="where the scripts lie; flags, choices and defaults",
    ),
    Confirmation(
        "convert_checkpoint.yaml",
        "trtllm",
        f"{EXAMPLES}; for m in llama qwen; do python3 $d/models/core/$m/convert_checkpoint.py --help; done",
        gpu=True,
        shows="flags that both scripts have",
    ),
    Confirmation(
        "llm_arguments.yaml",
        "trtllm",
        'python3 -c "from tensorrt_llm.llmapi import llm_args as a; [print(m.__name__, n, f.default) '
        'for m in (a.TorchLlmArgs, a.KvCacheConfig) for n, f in m.model_fields.items()]"',
        gpu=True,
        shows="fields and defaults of LLM() and of kv_cache_config",
    ),
    Confirmation(
        "tensorrt_llm_llmapi.json",
        "trtllm",
        'python3 -c "import inspect, tensorrt_llm as t; [print(inspect.getsource(c)) '
        'for c in (t.LLM, t.SamplingParams, t.llmapi.RequestOutput, t.llmapi.CompletionOutput)]"',
        gpu=True,
        shows="what the model of the llmapi kind calls and reads",
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
        "vllm_engine_arguments.yaml",
        "vllm",
        "cat /opt/tritonserver/backends/vllm/model.py",
        gpu=False,
        shows="inputs, parameters and multi_lora.json of Triton's backend",
    ),
)
"""One for each file; what a tool prints is compared with the file by eye, and the file corrected where they differ."""

NEWEST = RELEASES["trt-engine"][-1]


def doctor(
    image_contract: Annotated[
        bool, typer.Option("--image-contract", help="Commands that confirm tests/contracts in the vendors' images.")
    ] = False,
    release: Annotated[str, typer.Option(help="Triton release of the images.")] = NEWEST,
) -> None:
    """Print commands that confirm, on a machine with the vendors' images, what Slipway takes for granted of them."""
    if not image_contract:
        raise InputError("doctor has one look so far: give --image-contract.")
    for each in CONFIRMATIONS:
        image = f"nvcr.io/nvidia/tritonserver:{release}-{each.flavour}-python-py3"
        gpus = "--gpus 1 " if each.gpu else ""
        typer.echo(f"# tests/contracts/{each.contract}: {each.shows}")
        typer.echo(f"docker run --rm {gpus}{image} bash -c {shlex.quote(each.command)}\n")
