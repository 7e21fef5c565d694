"""The `slipway` command, for people and for CI. It talks to Airflow, the object store and Services."""
