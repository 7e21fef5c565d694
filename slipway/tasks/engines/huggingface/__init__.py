"""Engine kinds `llmapi` and `vllm`, which serve a checkpoint in Hugging Face layout."""
