"""What Slipway adds to Airflow."""
