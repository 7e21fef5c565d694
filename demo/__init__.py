"""`make demo`: four releases of one model through Airflow, on this machine, with the screens of `slipway`."""
