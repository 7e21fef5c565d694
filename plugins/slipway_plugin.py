"""Registers Slipway with an Airflow whose plugins folder this is. An installed wheel registers itself."""

from slipway.airflow.plugin import SlipwayPlugin

__all__ = ["SlipwayPlugin"]
