"""Configurations of every model type that plan knows, as a checkpoint's config.json would leave them to their defaults."""

from slipway.tasks.engines.checkpoint.config_defaults import ROWS, TYPE_OF_PART

TYPES = {name: {"model_type": name} for name in ROWS}
WHOLES = {name: {"model_type": name, "text_config": {}} for name in TYPE_OF_PART}
SWITCHED = {
    "qwen2 with windows": {"model_type": "qwen2", "use_sliding_window": True, "max_window_layers": 20},
    "gemma 3 with a pattern": {"model_type": "gemma3_text", "num_hidden_layers": 34, "sliding_window_pattern": 4},
    "gemma 3 12b": {"model_type": "gemma3", "text_config": {"model_type": "gemma3_text", "num_hidden_layers": 48}},
}
CONFIGURATIONS = {**TYPES, **{f"{name} as a whole": config for name, config in WHOLES.items()}, **SWITCHED}
