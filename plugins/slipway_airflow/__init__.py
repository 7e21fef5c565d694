"""The step operator and what it needs. Imported as `plugins.slipway_airflow`, never under a second name."""
