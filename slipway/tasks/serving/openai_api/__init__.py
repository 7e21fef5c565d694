"""OpenAI's API over the models of one Triton: docs/decisions/0019-openai-routes-in-the-pod.md.

Every route walks one way: read the request, make the model's inputs of it, generate, and send the answer.
"""
