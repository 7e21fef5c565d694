"""The DAGs of specs and of the site, and what their tasks in plain Python do. A DAG file calls the two functions."""

from slipway.airflow.dags.entry import release_dags, report_broken_specs

__all__ = ["release_dags", "report_broken_specs"]
