"""Airflow's services on one laptop."""
