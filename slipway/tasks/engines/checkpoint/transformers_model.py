"""Loads a Hugging Face checkpoint in transformers: its weights, its tokens, its logits."""

from collections.abc import Sequence
from importlib.metadata import version
from pathlib import Path
from typing import Any

from slipway.tasks.adapters.importing import importing
from slipway.tasks.contracts.errors import InputError
from slipway.tasks.engines.checkpoint.foreign import refusing
from slipway.tasks.engines.checkpoint.perplexity import Logits

REMEDY = "Choose a revision or an architecture that it can load."
OTHER_LOADERS = ("quantization_config", "transformers_weights")
"""Keys of a configuration by which transformers 5.5 loads by other code, kernels of the Hub included, or other files
than those that plan listed (modeling_utils.py, `from_pretrained`). No model that is loaded here has one: plan refuses
to quantize what is quantized."""


def load_model(checkpoint: Path, *, dtype: Any, device_map: str | None = None) -> Any:
    """The causal language model in `checkpoint`, for inference; no foreign code runs and nothing is fetched.

    Args:
        checkpoint: folder in Hugging Face layout.
        dtype: a torch.dtype, or "auto" for the checkpoint's own.
        device_map: "auto" spreads it over all GPUs; None is the CPU.

    Raises:
        InputError: transformers does not know the architecture, or the checkpoint is damaged or lacks tensors, or its
            configuration names another loader.
    """
    with importing():
        from transformers import AutoConfig, AutoModelForCausalLM
        from transformers.utils import logging

    logging.disable_progress_bar()  # type: ignore[no-untyped-call]
    auto: Any = AutoModelForCausalLM
    with refusing(f"transformers {version('transformers')} cannot load the checkpoint", REMEDY):
        config = AutoConfig.from_pretrained(checkpoint, local_files_only=True, trust_remote_code=False)
        _check_loader(config)
        model, loading = auto.from_pretrained(
            checkpoint,
            config=config,
            # a configuration may name a repository of the Hub here, whose code would run as a kernel. Its values are
            # overruled only where the configuration was read before
            attn_implementation=None,
            experts_implementation=None,
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


def _check_loader(config: Any) -> None:
    if named := [key for key in OTHER_LOADERS if getattr(config, key, None) is not None]:
        raise InputError(
            "config.json names another loader of the weights",
            found=", ".join(named),
            expected="plain safetensors weights",
            remedy="Choose the unquantized model.",
        )


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
