"""OpenAI's API over the models of one Triton: docs/decisions/0019-openai-routes-in-the-pod.md."""
