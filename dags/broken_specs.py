"""Reports broken release specs: an import error of this file in Airflow's UI names each one and what is wrong in it."""

from slipway.airflow.dags import report_broken_specs

report_broken_specs()
