"""Endpoints, Service proxies and the Gateway."""
