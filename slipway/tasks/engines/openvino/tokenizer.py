"""Converts a checkpoint's tokenizer to OpenVINO IR, in a process without torch.

transformers imports torch wherever it finds it, and its tokenizers need none of it: 17 CPU seconds and 465 MiB with
torch, 2.6 and 105 without, for the same IR to the byte (transformers 5.5, openvino-tokenizers 2026.4). It leaves alone
what it cannot import, which is for a process of its own: this one has torch in the other modules of the step.

    python -m slipway.tasks.engines.openvino.tokenizer CHECKPOINT OUT
"""

import sys
from importlib.metadata import version
from pathlib import Path
from typing import Any

from slipway.tasks.adapters.importing import importing
from slipway.tasks.engines.checkpoint.apart import limited, run_apart

UNUSED = ("torch", "sklearn", "scipy")
CPU_S = 600  # a vocabulary of 256,000 takes 20
MEMORY_BYTES = 8 * 2**30  # address space
HAS_TEMPLATE = "chat template"


def convert(checkpoint: Path, out: Path) -> bool:
    """Write tokenizer and detokenizer as IR to `out`; return whether the tokenizer has a chat template.

    Raises:
        InputError: transformers cannot load it, or openvino-tokenizers cannot convert it.
    """
    what = f"openvino-tokenizers {version('openvino-tokenizers')} cannot convert the tokenizer"
    said = run_apart(
        "slipway.tasks.engines.openvino.tokenizer",
        [str(checkpoint), str(out)],
        what=what,
        remedy="Choose a model with a fast tokenizer.",
    )
    return HAS_TEMPLATE in said.splitlines()


def main(checkpoint: Path, out: Path) -> None:
    """Convert, and say whether there is a chat template."""
    absent: dict[str, Any] = dict.fromkeys(UNUSED)
    sys.modules.update(absent)  # None: importing one fails as if it were not installed
    with importing():
        import openvino
        from openvino_tokenizers import convert_tokenizer
        from transformers import AutoTokenizer

    tokenizer = AutoTokenizer.from_pretrained(checkpoint, local_files_only=True, trust_remote_code=False)
    encode, decode = convert_tokenizer(tokenizer, with_detokenizer=True)
    openvino.save_model(encode, out / "openvino_tokenizer.xml")
    openvino.save_model(decode, out / "openvino_detokenizer.xml")
    if tokenizer.chat_template:
        sys.stdout.write(f"{HAS_TEMPLATE}\n")


if __name__ == "__main__":
    with limited(cpu_s=CPU_S, memory_bytes=MEMORY_BYTES):
        main(Path(sys.argv[1]), Path(sys.argv[2]))
