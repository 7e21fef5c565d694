"""Tells people and other systems how releases ended, by Airflow's notifiers: docs/notifications.md."""
