"""Models as their configuration in Triton describes them."""

from slipway.tasks.serving.openai_api.generation.inputs import served_model

OURS = (
    *("text_input", "max_tokens", "stream", "temperature", "seed"),
    *("messages", "apply_chat_template", "prompt_ids", "stop_words", "chat_template_kwargs"),
)
VLLM = (
    *("text_input", "stream", "sampling_parameters", "exclude_input_in_output"),
    *("return_finish_reason", "return_logprobs", "return_num_input_tokens", "return_num_output_tokens"),
)
VLLM_OUTPUTS = ("text_output", "finish_reason", "num_input_tokens", "num_output_tokens")


PROMPT_MODEL = {"prompt_model": {"string_value": "demo_prompt"}}


def config_of(
    inputs=OURS, outputs=("text_output", "finish_reason", "prompt_tokens", "completion_tokens"), **parameters
):
    return {
        "name": "demo",
        "parameters": parameters,
        "input": [{"name": name} for name in inputs],
        "output": [{"name": name} for name in outputs],
    }


def model_of(*args, **parameters):
    return served_model(config_of(*args, **parameters))
