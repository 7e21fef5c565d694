"""Stands in for vLLM on CPU where the real one has no room: the members that the served model uses, over NumPy.

It computes small Llamas and their LoRA adapters, greedily. The real one is judged by tests/vllm.
"""
