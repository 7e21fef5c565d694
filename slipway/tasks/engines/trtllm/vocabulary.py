"""The description of a vocabulary by which TensorRT-LLM's Triton backend makes answers obey a JSON Schema.

The C++ backend reads no tokenizer: it takes the texts of all tokens from a file, which a script of TensorRT-LLM's
examples writes (docs of tensorrtllm_backend, guided_decoding.md; model_instance_state.cc at 0c8de69a,
getGuidedDecodingConfigFromParams).
"""

from pathlib import Path
from tempfile import TemporaryDirectory

from slipway.tasks.contracts.errors import InputError
from slipway.tasks.engines.checkpoint.files import read_object
from slipway.tasks.engines.passthrough import link_tokenizer
from slipway.tasks.engines.trtllm.commands import vocabulary_command
from slipway.tasks.engines.trtllm.tool import run_tool

VOCABULARY = "xgrammar_tokenizer_info.json"
FIELDS = {"encoded_vocab": list, "tokenizer_str": str, "stop_token_ids": list}
"""What the backend reads of the file, without a default."""


def describe_vocabulary(script: Path, checkpoint: Path, out: Path) -> None:
    """Write the description of the checkpoint's vocabulary into the engine's folder.

    Raises:
        InputError: the script failed, or left out what the backend reads.
    """
    with TemporaryDirectory(dir=out.parent) as scratch:
        # without the engine's config.json, which transformers would read as a model's
        tokenizer = Path(scratch) / "tokenizer"
        tokenizer.mkdir()
        link_tokenizer(checkpoint, tokenizer)
        command = vocabulary_command(script, tokenizer, out)
        run_tool(command, Path(scratch) / "vocabulary.log", "describing the vocabulary")
    written = read_object(out / VOCABULARY)
    wrong = [name for name, kind in FIELDS.items() if not isinstance(written.get(name), kind) or not written[name]]
    if wrong:
        raise InputError(
            f"{VOCABULARY} does not describe the vocabulary",
            found=f"no {', '.join(wrong)}",
            expected="the texts of all tokens, the tokenizer and the tokens that end an answer",
            remedy="Remove engine.options.guided_decoding_backend, or choose a model with another tokenizer.",
        )
