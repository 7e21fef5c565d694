"""What crosses a process boundary. Pure data and arithmetic: no I/O, safe to import while Airflow parses DAGs."""
