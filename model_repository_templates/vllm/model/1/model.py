"""Triton model over vLLM. Everything that is not vLLM is in generation/."""

import locale
import os
from pathlib import Path
from typing import Any

import numpy as np
import triton_python_backend_utils as pb_utils
from engine_arguments import read_arguments
from generation.model_files.hf_tokenizer import HuggingFaceTokenizer
from generation.requests.adapters import read_adapters
from generation.service import Service
from generation.settings import check_numpy, read_settings
from live_adapters import FOLDER, LiveAdapters

MAX_TEMPERATURE = 2.0
"""vLLM refuses more (vllm/sampling_params.py, _verify_args, at v0.24.0 to v0.32.0)."""
UTF_8 = "C.UTF-8"
"""Python within Triton's stub has the locale C whatever the environment says, and would open texts as ASCII."""


class TritonPythonModel:
    """What Triton's Python backend loads."""

    def initialize(self, args: dict[str, str]) -> None:
        """Load the model; an error here keeps it from becoming ready."""
        check_numpy(np.__version__)
        locale.setlocale(locale.LC_CTYPE, UTF_8)
        settings = read_settings(args)
        gpus = settings.parameters.get("gpu_device_ids")
        if gpus:  # before anything loads CUDA
            os.environ["CUDA_VISIBLE_DEVICES"] = gpus
        from engine_metrics import stat_loggers
        from vllm_runtime import VllmRuntime

        tokenizer = HuggingFaceTokenizer(
            settings.engine, chat=settings.apply_chat_template, arguments=settings.template_arguments()
        )
        adapters = read_adapters(settings.parameters, settings.engine)
        arguments = read_arguments(Path(__file__).with_name("model.json"), settings.engine)
        self._runtime = VllmRuntime(arguments, tokenizer.end_ids, adapters, stat_loggers(args))
        live = None
        if folder := os.environ.get(FOLDER):
            live = LiveAdapters(adapters, Path(folder), self._runtime.load, pb_utils.Logger.log_error)
            live.watch()
        self._service = Service(
            self._runtime,
            tokenizer,
            settings.limits(tokenizer.default_max_tokens or settings.max_sequence_tokens, MAX_TEMPERATURE),
            slots=settings.max_batch_size,
            adapters=adapters if live is None else live,
        )
        self._runtime.watch(self._service.wake)

    def execute(self, requests: list[Any]) -> None:
        """Take requests; their answers follow."""
        self._service.accept(requests)

    def finalize(self) -> None:
        """Finish what runs."""
        self._service.drain()
        self._runtime.close()
