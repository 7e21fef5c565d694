"""A Llama in NumPy, with one LoRA adapter or none, and the safetensors that hold them."""

import json
import re
from dataclasses import dataclass

import numpy as np

MATRIX = re.compile(r"base_model\.model\.(.+)\.lora_([AB])\.weight")
NUMBERS = {"F32": np.float32, "F16": np.float16}


def read(file):
    """Tensors of a safetensors file as float32, by name."""
    data = file.read_bytes()
    length = int.from_bytes(data[:8], "little")
    header, body = json.loads(data[8 : 8 + length]), memoryview(data)[8 + length :]
    header.pop("__metadata__", None)
    return {name: _tensor(body, about) for name, about in header.items()}


def _tensor(body, about):
    begin, end = about["data_offsets"]
    if about["dtype"] == "BF16":
        numbers = (np.frombuffer(body[begin:end], np.uint16).astype(np.uint32) << 16).view(np.float32)
    else:
        numbers = np.frombuffer(body[begin:end], NUMBERS[about["dtype"]]).astype(np.float32)
    return numbers.reshape(about["shape"])


@dataclass(frozen=True)
class Adapter:
    rank: int
    scale: float
    matrices: dict

    def of(self, layer, inputs):
        """What it adds to the layer's outputs."""
        if layer not in self.matrices:
            return 0.0
        pair = self.matrices[layer]
        return inputs @ pair["A"].T @ pair["B"].T * self.scale


def read_adapter(folder):
    config, matrices = json.loads((folder / "adapter_config.json").read_text()), {}
    for name, tensor in read(folder / "adapter_model.safetensors").items():
        layer, part = MATRIX.fullmatch(name).groups()
        matrices.setdefault(layer, {})[part] = tensor
    return Adapter(config["r"], config["lora_alpha"] / config["r"], matrices)


class Llama:
    def __init__(self, folder):
        self.config = json.loads((folder / "config.json").read_text())
        self.weights = {name: tensor for file in folder.glob("*.safetensors") for name, tensor in read(file).items()}

    def next_token(self, tokens, adapter):
        states = self.weights["model.embed_tokens.weight"][tokens]
        for number in range(self.config["num_hidden_layers"]):
            layer = f"model.layers.{number}"
            states = states + self.attention(
                f"{layer}.self_attn", self.norm(f"{layer}.input_layernorm", states), adapter
            )
            states = states + self.mlp(f"{layer}.mlp", self.norm(f"{layer}.post_attention_layernorm", states), adapter)
        return int(np.argmax(self.weights["lm_head.weight"] @ self.norm("model.norm", states[-1])))

    def norm(self, layer, states):
        mean = np.mean(states**2, axis=-1, keepdims=True)
        return states / np.sqrt(mean + self.config["rms_norm_eps"]) * self.weights[f"{layer}.weight"]

    def linear(self, layer, inputs, adapter):
        outputs = inputs @ self.weights[f"{layer}.weight"].T
        return outputs + adapter.of(layer, inputs) if adapter else outputs

    def mlp(self, layer, states, adapter):
        gate, up = (self.linear(f"{layer}.{name}_proj", states, adapter) for name in ("gate", "up"))
        return self.linear(f"{layer}.down_proj", gate / (1 + np.exp(-gate)) * up, adapter)

    def attention(self, layer, states, adapter):
        size, count = self.config["head_dim"], len(states)
        q, k, v = (
            self.linear(f"{layer}.{name}_proj", states, adapter).reshape(count, -1, size).swapaxes(0, 1)
            for name in ("q", "k", "v")
        )
        shared = len(q) // len(k)
        k, v = np.repeat(k, shared, axis=0), np.repeat(v, shared, axis=0)
        scores = self.rotated(q) @ self.rotated(k).swapaxes(1, 2) / np.sqrt(size)
        scores = np.where(np.tri(count, dtype=bool), scores, -np.inf)
        shares = np.exp(scores - scores.max(axis=-1, keepdims=True))
        mixed = (shares / shares.sum(axis=-1, keepdims=True)) @ v
        return self.linear(f"{layer}.o_proj", mixed.swapaxes(0, 1).reshape(count, -1), adapter)

    def rotated(self, heads):
        half = self.config["head_dim"] // 2
        angles = np.outer(np.arange(heads.shape[1]), self.config["rope_theta"] ** (-np.arange(half) / half))
        cos, sin = np.cos(angles), np.sin(angles)
        low, high = heads[..., :half], heads[..., half:]
        return np.concatenate([low * cos - high * sin, high * cos + low * sin], axis=-1)
