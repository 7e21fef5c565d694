"""A Hugging Face checkpoint in transformers, as every quantization starts: its weights, its tokens, its logits."""

from collections.abc import Sequence
from importlib.metadata import version
from pathlib import Path
from typing import Any

from tasks.contracts.errors import InputError
from tasks.engines.perplexity import Logits

LOAD_ERRORS = (OSError, ValueError, KeyError, RuntimeError, ImportError)
"""What transformers 5.5 and 5.14 raise for unknown architectures, foreign code, wrong shapes and damaged files."""


def load_model(checkpoint: Path, *, dtype: Any, device_map: str | None = None) -> Any:
    """The causal language model in `checkpoint`, for inference; no foreign code runs and nothing is fetched.

    Args:
        checkpoint: folder in Hugging Face layout.
        dtype: a torch.dtype, or "auto" for the checkpoint's own.
        device_map: "auto" spreads it over all GPUs; None is the CPU.

    Raises:
        InputError: transformers does not know the architecture, or the checkpoint is damaged or lacks tensors.
    """
    from transformers import AutoModelForCausalLM
    from transformers.utils import logging

    logging.disable_progress_bar()  # type: ignore[no-untyped-call]
    auto: Any = AutoModelForCausalLM
    try:
        model, loading = auto.from_pretrained(
            checkpoint,
            dtype=dtype,
            device_map=device_map,
            use_safetensors=True,
            local_files_only=True,
            trust_remote_code=False,
            output_loading_info=True,
        )
    except LOAD_ERRORS as error:
        raise InputError(
            f"transformers {version('transformers')} cannot load the checkpoint: {first_line(error)}. "
            "Choose a revision or an architecture that it can."
        ) from error
    if missing := sorted(loading["missing_keys"]):
        raise InputError(
            f"the checkpoint lacks {len(missing)} tensors of its architecture, such as {missing[0]}. "
            "Choose a complete revision."
        )
    return model.eval()


def load_tokenizer(checkpoint: Path) -> Any:
    """The checkpoint's tokenizer.

    Raises:
        InputError: transformers cannot load it.
    """
    from transformers import AutoTokenizer

    try:
        return AutoTokenizer.from_pretrained(checkpoint, local_files_only=True, trust_remote_code=False)
    except LOAD_ERRORS as error:
        raise InputError(f"the tokenizer cannot be loaded: {first_line(error)}. Choose another revision.") from error


def token_ids(tokenizer: Any, texts: Sequence[str], limit: int | None) -> list[list[int]]:
    """Each text as the model sees it, special tokens included, cut to `limit` tokens."""
    return [list(tokenizer(text)["input_ids"])[:limit] for text in texts]


def logits_of(model: Any) -> Logits:
    """What the model computes, wherever it lies; logits in 32 bit."""
    import torch

    def logits(ids: list[int]) -> Any:
        with torch.inference_mode():
            return model(torch.tensor([ids], device=model.device)).logits[0].float().cpu().numpy()

    return logits


def first_line(error: Exception) -> str:
    """What a toolkit's exception says, short enough for a message."""
    text = str(error).strip() or type(error).__name__
    return text.splitlines()[0][:160].rstrip(".")
