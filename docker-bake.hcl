# Every image, with an SBOM and SLSA provenance attached:
#
#     make images                                         the CPU images, into the local image store, and their checks
#     REGISTRY=registry.example/slipway VERSION=0.1.0 docker buildx bake --push all
#
# Attestations need a builder of the docker-container driver (`docker buildx create --use`), or Docker's containerd image store.
# Pin NVIDIA's images by digest: TRTLLM=nvcr.io/nvidia/tritonserver:26.07-trtllm-python-py3@sha256:...

variable "REGISTRY" { default = "slipway" }
variable "VERSION" { default = "dev" }
variable "TRITON_RELEASE" { default = "26.07" }
variable "PYTHON" { default = "python:3.11-slim-bookworm@sha256:528257d48c1da0dcecc2e725d1ae34498d60c965f1241e39cd6a85a8859bdf84" }
variable "TORCH_INDEX" { default = "https://download.pytorch.org/whl/cpu" }
variable "TRTLLM" { default = "nvcr.io/nvidia/tritonserver:${TRITON_RELEASE}-trtllm-python-py3" }
variable "VLLM" { default = "nvcr.io/nvidia/tritonserver:${TRITON_RELEASE}-vllm-python-py3" }
variable "PYTORCH" { default = "nvcr.io/nvidia/pytorch:26.04-py3" }

group "default" { targets = ["airflow", "tasks-cpu", "triton-cpu"] }
group "optional" { targets = ["harness"] }
group "gpu" { targets = ["tasks-gpu-trtllm", "tasks-gpu-vllm", "tasks-modelopt", "triton-multinode"] }
group "all" { targets = ["default", "optional", "gpu"] }

target "_image" {
  context   = "."
  platforms = ["linux/amd64"]
  attest    = ["type=sbom", "type=provenance,mode=max"]
}

target "airflow" {
  inherits   = ["_image"]
  dockerfile = "images/airflow/Dockerfile"
  args       = { PYTHON = PYTHON }
  tags       = ["${REGISTRY}/airflow:${VERSION}"]
}

target "tasks-cpu" {
  inherits   = ["_image"]
  dockerfile = "images/tasks-cpu/Dockerfile"
  args       = { PYTHON = PYTHON, TORCH_INDEX = TORCH_INDEX }
  tags       = ["${REGISTRY}/tasks-cpu:${VERSION}"]
}

target "triton-cpu" {
  inherits   = ["_image"]
  dockerfile = "images/triton-cpu/Dockerfile"
  args       = { PYTHON = PYTHON }
  tags       = ["${REGISTRY}/triton-cpu:${VERSION}"]
}

target "harness" {
  inherits   = ["_image"]
  dockerfile = "images/harness/Dockerfile"
  args       = { PYTHON = PYTHON }
  tags       = ["${REGISTRY}/harness:${VERSION}"]
}

# The tags end in Triton's release and flavour, from which plan knows what an image contains.
target "tasks-gpu-trtllm" {
  inherits   = ["_image"]
  dockerfile = "images/tasks-gpu/Dockerfile"
  args       = { TRITON = TRTLLM }
  tags       = ["${REGISTRY}/tasks-gpu:${VERSION}-${TRITON_RELEASE}-trtllm"]
}

target "tasks-gpu-vllm" {
  inherits   = ["_image"]
  dockerfile = "images/tasks-gpu/Dockerfile"
  args       = { TRITON = VLLM }
  tags       = ["${REGISTRY}/tasks-gpu:${VERSION}-${TRITON_RELEASE}-vllm"]
}

target "tasks-modelopt" {
  inherits   = ["_image"]
  dockerfile = "images/tasks-modelopt/Dockerfile"
  args       = { PYTORCH = PYTORCH }
  tags       = ["${REGISTRY}/tasks-modelopt:${VERSION}"]
}

target "triton-multinode" {
  inherits   = ["_image"]
  dockerfile = "images/triton-multinode/Dockerfile"
  contexts   = { tasks-gpu = "target:tasks-gpu-trtllm" }
  args       = { TASKS_GPU = "tasks-gpu" }
  tags       = ["${REGISTRY}/triton-multinode:${VERSION}-${TRITON_RELEASE}-trtllm"]
}
