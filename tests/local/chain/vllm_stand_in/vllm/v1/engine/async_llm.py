import asyncio
from pathlib import Path
from types import SimpleNamespace

from vllm.llama import Llama, read_adapter


class AsyncLLM:
    @classmethod
    def from_engine_args(cls, arguments, *, stat_loggers):
        return cls(arguments)

    def __init__(self, arguments):
        self.arguments, self.model = arguments, Llama(Path(arguments.model))
        self.adapters = {}
        self.one = asyncio.Lock()

    async def add_lora(self, request):
        """As the real one it reads the files now, and refuses a rank above that of its room."""
        adapter = read_adapter(Path(request.lora_path))
        if not self.arguments.max_loras or adapter.rank > self.arguments.max_lora_rank:
            raise ValueError(f"LoRA rank {adapter.rank} is greater than max_lora_rank {self.arguments.max_lora_rank}")
        self.adapters[request.lora_int_id] = adapter
        return True

    async def generate(self, prompt, sampling, request_id, lora_request=None):
        adapter = self.adapters[lora_request.lora_int_id] if lora_request else None
        asked, made = prompt["prompt_token_ids"], []
        reason = None
        while reason is None:
            async with self.one:
                token = await asyncio.to_thread(self.model.next_token, [*asked, *made], adapter)
            made.append(token)
            reason = "stop" if token in (sampling.stop_token_ids or ()) else None
            reason = reason or ("length" if len(made) >= sampling.max_tokens else None)
            output = SimpleNamespace(token_ids=[token], finish_reason=reason, logprobs=None)
            yield SimpleNamespace(
                outputs=[output], finished=reason is not None, prompt_token_ids=asked, prompt_logprobs=None
            )

    async def check_health(self):
        pass

    def shutdown(self):
        pass
