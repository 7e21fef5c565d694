"""Observes the cluster and the channel, and carries out what slipway/tasks/rollout/decide decides."""
