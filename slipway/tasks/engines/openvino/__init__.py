"""Engine kind `openvino`: models that are served on CPUs."""
