"""Airflow's REST API and its credentials."""
