"""Loads a Hugging Face checkpoint in transformers: its weights, its tokens, its logits."""

from collections.abc import Sequence
from importlib.metadata import version
from pathlib import Path
from typing import Any

from tasks.contracts.errors import InputError
from tasks.engines.checkpoint.foreign import refusing
from tasks.engines.checkpoint.perplexity import Logits

REMEDY = "Choose a revision or an architecture that it can load."


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
    with refusing(f"transformers {version('transformers')} cannot load the checkpoint", REMEDY):
        model, loading = auto.from_pretrained(
            checkpoint,
            dtype=dtype,
            device_map=device_map,
            use_safetensors=True,
            local_files_only=True,
            trust_remote_code=False,
            output_loading_info=True,
        )
    if missing := sorted(loading["missing_keys"]):
        raise InputError(
            f"the checkpoint lacks {len(missing)} tensors of its architecture, such as {missing[0]}",
            remedy="Choose a complete revision.",
        )
    return model.eval()


def load_tokenizer(checkpoint: Path) -> Any:
    """The checkpoint's tokenizer.

    Raises:
        InputError: transformers cannot load it.
    """
    from transformers import AutoTokenizer

    with refusing("the tokenizer cannot be loaded", "Choose another revision."):
        return AutoTokenizer.from_pretrained(checkpoint, local_files_only=True, trust_remote_code=False)


def token_ids(tokenizer: Any, texts: Sequence[str], limit: int | None) -> list[list[int]]:
    """Each text as the model sees it, special tokens included, cut to `limit` tokens."""
    return [list(tokenizer(text)["input_ids"])[:limit] for text in texts]


def logits_of(model: Any) -> Logits:
    """Logits that the model computes on its own device, in 32 bit."""
    import torch

    def logits(ids: list[int]) -> Any:
        with torch.inference_mode():
            return model(torch.tensor([ids], device=model.device)).logits[0].float().cpu().numpy()

    return logits
