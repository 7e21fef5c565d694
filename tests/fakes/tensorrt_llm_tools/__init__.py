"""TensorRT-LLM's tools as far as files go: they take the real ones' flags and write what those would, without a GPU."""

import shutil
import stat
import sys
from pathlib import Path

HERE = Path(__file__).parent


def install(folder):
    """Put the tools below `folder`; the folder of examples, and the one for PATH."""
    examples, programs = folder / "examples", folder / "bin"
    quantization, llama = examples / "quantization", examples / "models" / "core" / "llama"
    for each in (quantization, llama, programs):
        each.mkdir(parents=True)
    shutil.copyfile(HERE / "to_checkpoint.py", quantization / "quantize.py")
    shutil.copyfile(HERE / "to_checkpoint.py", llama / "convert_checkpoint.py")
    build = programs / "trtllm-build"
    build.write_text(f"#!{sys.executable}\n" + (HERE / "build.py").read_text())
    build.chmod(build.stat().st_mode | stat.S_IXUSR)
    (programs / "python3").symlink_to(sys.executable)
    return examples, programs
