"""The Kubernetes API and what its objects say. Manifests are rendered in slipway/tasks/serving."""
