"""Instances of AWS with NVIDIA GPUs, as Karpenter sees them. Data only.

From website/content/en/docs/reference/instance-types.md of aws/karpenter-provider-aws v1.14.1 (Apache-2.0), which its
project generates from EC2's own answers: labels karpenter.k8s.aws/instance-*, and resources after the overhead of an
AL2023 node. Left out: arm64, and instances with a part of a GPU.
"""

from typing import NamedTuple


class GpuInstance(NamedTuple):
    """One instance type."""

    gpu: str
    """Label karpenter.k8s.aws/instance-gpu-name."""
    gpus: int
    gpu_memory_mib: int
    cpu_m: int
    """CPU that pods can have, in thousandths of a core."""
    memory_mib: int
    """Memory that pods can have."""
    nvme_gb: int
    """Size of the instance store, in 10^9 bytes: the node's ephemeral storage with instanceStorePolicy RAID0."""
    efa: int
    """Elastic Fabric Adapters."""


GPU_INSTANCES = {
    "g4dn.xlarge": GpuInstance("t4", 1, 16384, 3920, 14481, 125, 0),
    "g4dn.2xlarge": GpuInstance("t4", 1, 16384, 7910, 29636, 225, 0),
    "g4dn.4xlarge": GpuInstance("t4", 1, 16384, 15890, 59946, 225, 0),
    "g4dn.8xlarge": GpuInstance("t4", 1, 16384, 31850, 120248, 900, 1),
    "g4dn.12xlarge": GpuInstance("t4", 4, 16384, 47810, 178933, 900, 1),
    "g4dn.16xlarge": GpuInstance("t4", 1, 16384, 63770, 241490, 900, 1),
    "g4dn.metal": GpuInstance("t4", 8, 16384, 95690, 355262, 1800, 1),
    "g5.xlarge": GpuInstance("a10g", 1, 22888, 3920, 14162, 250, 0),
    "g5.2xlarge": GpuInstance("a10g", 1, 22888, 7910, 29317, 450, 0),
    "g5.4xlarge": GpuInstance("a10g", 1, 22888, 15890, 57691, 600, 0),
    "g5.8xlarge": GpuInstance("a10g", 1, 22888, 31850, 118312, 900, 1),
    "g5.12xlarge": GpuInstance("a10g", 4, 22888, 47810, 173400, 3800, 1),
    "g5.16xlarge": GpuInstance("a10g", 1, 22888, 63770, 239554, 1900, 1),
    "g5.24xlarge": GpuInstance("a10g", 4, 22888, 95690, 355262, 3800, 1),
    "g5.48xlarge": GpuInstance("a10g", 8, 22888, 191450, 723299, 7600, 1),
    "g6.xlarge": GpuInstance("l4", 1, 22888, 3920, 14162, 250, 0),
    "g6.2xlarge": GpuInstance("l4", 1, 22888, 7910, 29317, 450, 0),
    "g6.4xlarge": GpuInstance("l4", 1, 22888, 15890, 57691, 600, 0),
    "g6.8xlarge": GpuInstance("l4", 1, 22888, 31850, 118312, 900, 1),
    "g6.12xlarge": GpuInstance("l4", 4, 22888, 47810, 178933, 3760, 1),
    "g6.16xlarge": GpuInstance("l4", 1, 22888, 63770, 234021, 1880, 1),
    "g6.24xlarge": GpuInstance("l4", 4, 22888, 95690, 355262, 3760, 1),
    "g6.48xlarge": GpuInstance("l4", 8, 22888, 191450, 718987, 7520, 1),
    "g6e.xlarge": GpuInstance("l40s", 1, 45776, 3920, 29317, 250, 0),
    "g6e.2xlarge": GpuInstance("l40s", 1, 45776, 7910, 59627, 450, 0),
    "g6e.4xlarge": GpuInstance("l40s", 1, 45776, 15890, 118312, 600, 0),
    "g6e.8xlarge": GpuInstance("l40s", 1, 45776, 31850, 239554, 900, 1),
    "g6e.12xlarge": GpuInstance("l40s", 4, 45776, 47810, 360157, 3800, 1),
    "g6e.16xlarge": GpuInstance("l40s", 1, 45776, 63770, 476504, 1900, 1),
    "g6e.24xlarge": GpuInstance("l40s", 4, 45776, 95690, 721682, 3800, 2),
    "g6e.48xlarge": GpuInstance("l40s", 8, 45776, 191450, 1449132, 7600, 4),
    "g7e.2xlarge": GpuInstance("rtx-pro-server-6000", 1, 98304, 7910, 57471, 1900, 0),
    "g7e.4xlarge": GpuInstance("rtx-pro-server-6000", 1, 98304, 15890, 115320, 1900, 0),
    "g7e.8xlarge": GpuInstance("rtx-pro-server-6000", 1, 98304, 31850, 236562, 1900, 1),
    "g7e.12xlarge": GpuInstance("rtx-pro-server-6000", 2, 98304, 47810, 477659, 3800, 1),
    "g7e.24xlarge": GpuInstance("rtx-pro-server-6000", 4, 98304, 95690, 962625, 7600, 2),
    "g7e.48xlarge": GpuInstance("rtx-pro-server-6000", 8, 98304, 191450, 1932558, 15200, 4),
    "gr6.4xlarge": GpuInstance("l4", 1, 22888, 15890, 118312, 600, 0),
    "gr6.8xlarge": GpuInstance("l4", 1, 22888, 31850, 239554, 900, 1),
    "p3dn.24xlarge": GpuInstance("v100", 8, 32768, 95690, 718987, 1800, 1),
    "p4d.24xlarge": GpuInstance("a100", 8, 40960, 95690, 1082712, 8000, 4),
    "p4de.24xlarge": GpuInstance("a100", 8, 81920, 95690, 1082712, 8000, 4),
    "p5.4xlarge": GpuInstance("h100", 1, 81920, 15890, 240830, 3800, 1),
    "p5.48xlarge": GpuInstance("h100", 8, 81920, 191450, 1938410, 30400, 32),
    "p5e.48xlarge": GpuInstance("h200", 8, 144384, 191450, 1938410, 30400, 32),
    "p5en.48xlarge": GpuInstance("h200", 8, 144384, 191450, 1937332, 30400, 16),
    "p6-b200.48xlarge": GpuInstance("b200", 8, 183359, 191450, 1937332, 30400, 8),
    "p6-b300.48xlarge": GpuInstance("b300", 8, 275040, 191450, 3877198, 30400, 16),
}

KARPENTER_NAMES = {
    "Tesla-T4": ("t4", 16384),
    "NVIDIA-A10G": ("a10g", 22888),
    "NVIDIA-L4": ("l4", 22888),
    "NVIDIA-L40S": ("l40s", 45776),
    "NVIDIA-A100-SXM4-40GB": ("a100", 40960),
    "NVIDIA-A100-SXM4-80GB": ("a100", 81920),
    "NVIDIA-H100-80GB-HBM3": ("h100", 81920),
    "NVIDIA-H200": ("h200", 144384),
    "NVIDIA-B200": ("b200", 183359),
}
"""Names and memory in MiB that Karpenter gives to GPUs, by the value of the label nvidia.com/gpu.product.

That value is the name of the CUDA device with spaces as hyphens (internal/lm/resource.go of NVIDIA/k8s-device-plugin
v0.20.0), which is why a T4 is a Tesla-T4.
"""
