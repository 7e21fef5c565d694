"""Slipway's pages in Airflow: what people see of models. Only the API server imports its modules."""

PREFIX = "/slipway"
"""Path of the pages at the API server."""
