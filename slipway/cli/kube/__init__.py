"""The Kubernetes API as a person reaches it: kubeconfig, port-forward, routes to pods."""
