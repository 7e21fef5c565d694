"""The `slipway` command, for people and for CI. It speaks with Airflow, the object store and Services; runs no step."""
