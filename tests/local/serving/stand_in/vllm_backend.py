"""Stands in for Triton's vLLM backend: its inputs and outputs (vllm_backend, src/model.py and src/utils/request.py), and
its manner of answering. It says what it was asked. As vLLM does, it tokenizes a prompt with the special tokens of any
text, has room for 16 tokens unless it is told otherwise, and refuses a prompt without room for an answer."""

import json
from pathlib import Path

import numpy as np
import triton_python_backend_utils as pb_utils
from tokenizers import Tokenizer

SAMPLING = {
    *("n", "presence_penalty", "frequency_penalty", "repetition_penalty", "temperature", "top_p", "top_k", "min_p"),
    *("seed", "stop", "stop_token_ids", "ignore_eos", "max_tokens", "min_tokens", "logprobs", "prompt_logprobs"),
    *("detokenize", "skip_special_tokens", "spaces_between_special_tokens", "include_stop_str_in_output"),
    *("structured_outputs", "logit_bias", "allowed_token_ids", "extra_args", "bad_words", "lora_name"),
}
"""Fields of vLLM's SamplingParams that all recorded versions have: tests/contracts/vllm_sampling_parameters.yaml."""

FINAL = pb_utils.TRITONSERVER_RESPONSE_COMPLETE_FINAL


class TritonPythonModel:
    @staticmethod
    def auto_complete_config(config):
        texts = [("text_input", False), ("sampling_parameters", True)]
        flags = ["stream", "exclude_input_in_output", "return_finish_reason", "return_logprobs"]
        flags += ["return_num_input_tokens", "return_num_output_tokens"]
        for name, optional in texts:
            config.add_input({"name": name, "data_type": "TYPE_STRING", "dims": [1], "optional": optional})
        for name in flags:
            config.add_input({"name": name, "data_type": "TYPE_BOOL", "dims": [1], "optional": True})
        for name in ("text_output", "finish_reason", "logprobs"):
            config.add_output({"name": name, "data_type": "TYPE_STRING", "dims": [-1]})
        for name in ("num_input_tokens", "num_output_tokens"):
            config.add_output({"name": name, "data_type": "TYPE_UINT32", "dims": [-1]})
        config.set_model_transaction_policy({"decoupled": True})
        config.set_max_batch_size(0)
        return config

    def initialize(self, args):
        folder = Path(args["model_repository"]) / args["model_version"]
        self.arguments = json.loads((folder / "model.json").read_text())
        self.tokenizer = Tokenizer.from_file(f"{self.arguments['model']}/tokenizer.json")
        enabled = self.arguments.get("enable_lora")
        self.adapters = json.loads((folder / "multi_lora.json").read_text()) if enabled else None

    def execute(self, requests):
        for request in requests:
            asked, text = json.loads(value(request, "sampling_parameters")), value(request, "text_input").decode()
            tokens = self.tokenizer.encode(text, add_special_tokens=True).ids
            if message := self.refusal(asked, tokens):
                error = pb_utils.InferenceResponse(error=pb_utils.TritonError(message))
                request.get_response_sender().send(error, flags=FINAL)
                continue
            if "structured_outputs" in asked:
                assert set(json.loads(asked["structured_outputs"])) == {"grammar"}, "JSON within JSON"
            if value(request, "stream"):
                assert value(request, "exclude_input_in_output") is not False, "refused while streaming"
            prepended = "" if value(request, "exclude_input_in_output") else text
            words = [f"{text!r} ", *(f"{name}={asked[name]} " for name in sorted(asked))]
            pieces = words if value(request, "stream") else [prepended + "".join(words)]
            sender = request.get_response_sender()
            for number, piece in enumerate(pieces):
                last = number == len(pieces) - 1
                outputs = [tensor("text_output", piece)]
                if value(request, "return_finish_reason"):
                    outputs.append(tensor("finish_reason", str("length" if last else None)))
                if value(request, "return_logprobs"):
                    chosen = {"logprob": -0.5, "rank": 1, "decoded_token": piece}
                    outputs.append(tensor("logprobs", json.dumps([{"7": chosen}])))
                # a token of an answer is a word here
                if value(request, "return_num_input_tokens"):
                    outputs.append(count("num_input_tokens", len(tokens)))
                if value(request, "return_num_output_tokens"):
                    outputs.append(count("num_output_tokens", len(piece.split())))
                sender.send(pb_utils.InferenceResponse(outputs), flags=FINAL if last else 0)

    def refusal(self, asked, tokens):
        """The error, as the backend and vLLM word it; empty if they take the request."""
        if wrong := set(asked) - SAMPLING:  # from_dict gives None, and the next line fails
            return f"Error generating stream: 'NoneType' object has no attribute 'lora_name' ({wrong})"
        if any(value is None for value in asked.values()):  # int(None)
            return "Error generating stream: 'NoneType' object has no attribute 'lora_name'"
        if (adapter := asked.get("lora_name")) is not None and self.adapters is None:
            return "LoRA feature is not enabled."
        if adapter is not None and adapter not in self.adapters:
            return f"LoRA {adapter} is not supported, we currently support {list(self.adapters)}"
        if len(tokens) >= self.arguments["max_model_len"]:
            return f"Error generating stream: The decoder prompt (length {len(tokens)}) is longer than the maximum"
        return ""


def value(request, name):
    found = pb_utils.get_input_tensor_by_name(request, name)
    return None if found is None else found.as_numpy()[0]


def count(name, number):
    return pb_utils.Tensor(name, np.array([number], dtype=np.uint32))


def tensor(name, text):
    return pb_utils.Tensor(name, np.array([text.encode()], dtype=np.object_))
