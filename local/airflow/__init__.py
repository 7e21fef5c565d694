"""Airflow's four services on one laptop."""
