"""The steps of a release. Runs in pods, knows nothing of Airflow."""
