"""Observes the cluster and the channel, and carries out what tasks/rollout/decide decides."""
