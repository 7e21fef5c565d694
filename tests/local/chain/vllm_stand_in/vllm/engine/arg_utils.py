class AsyncEngineArgs:
    def __init__(self, *, model, **others):
        self.model = model
        self.max_loras = others["max_loras"] if others.get("enable_lora") else 0
        self.max_lora_rank = others.get("max_lora_rank", 16)
        assert others.get("max_cpu_loras", self.max_loras) >= self.max_loras
