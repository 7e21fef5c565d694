"""Slipway's page in Airflow: every model that the reader may see, in one table. Only the API server imports it."""
