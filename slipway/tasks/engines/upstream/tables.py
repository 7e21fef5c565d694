"""Reads the tables of this folder. `python -m tests.contracts write` writes them from upstream's files.

That of TensorRT-LLM is written by hand: its wheel cannot be had without NVIDIA's own index.
"""

import json
from collections.abc import Mapping
from functools import cache
from pathlib import Path
from typing import Any

from slipway.tasks.contracts.engine.triton_releases import Flavour

Table = Mapping[str, Any]

FOLDER = Path(__file__).parent

PACKAGES: Mapping[Flavour, str] = {"trtllm": "tensorrt_llm", "vllm": "vllm"}
"""The package of the runtime, by the flavour of Triton's image."""

OLDEST_WITH_VERSION_5 = "5.5.4"
"""The transformers of the tables that stands for version 5: vLLM from 0.22.1 on requires one of 5.5.3 or later."""


@cache
def table_of(package: str, version: str) -> Table | None:
    """The table of a version of `vllm`, `tensorrt_llm` or `transformers`; None where none was written."""
    file = FOLDER / f"{package}-{version}.json"
    if not file.is_file():
        return None
    table: Table = json.loads(file.read_text(encoding="utf-8"))
    return table
