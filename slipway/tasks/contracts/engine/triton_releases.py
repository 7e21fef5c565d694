"""What NVIDIA's Triton images hold, by flavour, newest first. Pure.

`python -m tests.contracts triton` writes this module (CONTRIBUTING.md, Compare with upstream).
"""

from typing import Literal

Flavour = Literal["trtllm", "vllm"]
"""Variants of NVIDIA's Triton images that hold a runtime for GPUs."""
Row = tuple[str, str, str | None, str, str, bool]
"""Triton's release; versions of TensorRT-LLM or vLLM, of TensorRT and of CUDA; the commit of upstream's matrix; whether
the release serves here."""

ROWS: dict[Flavour, tuple[Row, ...]] = {
    "trtllm": (
        ("26.07", "1.2.1", "10.14.1.48", "13.1.0.036", "e1db8a603", True),
        ("26.06", "1.2.1", "10.14.1.48", "13.1.0.036", "e1db8a603", True),
        ("26.05", "1.2.1", "10.14.1.48", "13.1.0.036", "e1db8a603", True),
        ("26.04", "1.2.1", "10.14.1.48", "13.1.0.036", "e1db8a603", True),
        ("26.03", "1.2.0", "10.14.1.48", "13.1.0.036", "e1db8a603", False),
        ("26.02", "1.1.0", "10.13.3.9", "13.0.2.006", "e1db8a603", False),
        ("26.01", "1.1.0", "10.13.3.9", "13.0.2.006", "e1db8a603", False),
        ("25.12", "1.1.0", "10.13.3.9", "13.0.2.006", "e1db8a603", False),
        ("25.11", "1.0.3.2510", "10.13.3.9", "13.0.2.006", "e1db8a603", False),
        ("25.10", "1.0.0", "10.11.0.33", "12.9.1.010", "e1db8a603", False),
    ),
    "vllm": (
        ("26.08", "0.27.1", None, "13.4.1.012", "6fa22ae02", True),
        ("26.07", "0.24.0", None, "13.3.0.035", "e1db8a603", True),
        ("26.06", "0.22.1", None, "13.3.0.035", "e1db8a603", True),
        ("26.05", "0.19.0", None, "13.2.1.009", "e1db8a603", True),
        ("26.04", "0.19.0", None, "13.2.1.009", "e1db8a603", True),
        ("26.03", "0.17.1", None, "13.2.0.046", "e1db8a603", False),
        ("26.02", "0.15.1", None, "13.1.1.006", "e1db8a603", False),
        ("26.01", "0.13.0", None, "13.1.1.006", "e1db8a603", False),
        ("25.12", "0.11.1", None, "13.1.0.036", "e1db8a603", False),
        ("25.11", "0.11.0", None, "13.0.2.006", "e1db8a603", False),
        ("25.10", "0.10.2", None, "13.0.2.006", "e1db8a603", False),
    ),
}
