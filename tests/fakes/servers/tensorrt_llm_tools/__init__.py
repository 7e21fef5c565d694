"""TensorRT-LLM's tools as far as files go: they take the real ones' flags and write what those would, without a GPU."""

import shutil
import stat
import sys
from pathlib import Path

HERE = Path(__file__).parent
FAMILIES = ("core/llama", "core/gemma", "contrib/deepseek_v2")
"""Folders of converters: one with the flags that most have, and two that differ."""


def install(folder):
    """Put the tools below `folder`; the folder of examples, and the one for PATH."""
    examples, programs = folder / "examples", folder / "bin"
    quantization = examples / "quantization"
    converters = [examples / "models" / family for family in FAMILIES]
    for each in (quantization, *converters, programs):
        each.mkdir(parents=True)
    shutil.copyfile(HERE / "to_checkpoint.py", quantization / "quantize.py")
    for each in converters:
        shutil.copyfile(HERE / "to_checkpoint.py", each / "convert_checkpoint.py")
    shutil.copyfile(HERE / "lora_convert.py", examples / "hf_lora_convert.py")
    shutil.copyfile(HERE / "vocabulary.py", examples / "generate_xgrammar_tokenizer_info.py")
    build = programs / "trtllm-build"
    build.write_text(f"#!{sys.executable}\n" + (HERE / "build.py").read_text())
    python = programs / "python3"
    # no link: by its own path it has the packages beside it
    python.write_text(f'#!/bin/sh\nexec {sys.executable} "$@"\n')
    for program in (build, python):
        program.chmod(program.stat().st_mode | stat.S_IXUSR)
    return examples, programs
