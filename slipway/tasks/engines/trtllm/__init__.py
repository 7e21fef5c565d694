"""Engine kind `trt-engine`: TensorRT-LLM's own quantization, builder and C++ runtime."""
