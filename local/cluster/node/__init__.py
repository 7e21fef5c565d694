"""The kubelet: pods, containers, probes, volumes, logs, eviction."""
