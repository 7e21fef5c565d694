"""The DAGs of every release spec and of the site."""

from slipway.airflow.dags import release_dags

globals().update(release_dags())
