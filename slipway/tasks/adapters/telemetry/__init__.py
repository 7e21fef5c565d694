"""Traces, metrics and log lines of steps."""
