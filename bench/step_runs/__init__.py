"""Releases on the laptop's stack whose steps do next to nothing: what is left is what Airflow and the cluster cost."""
