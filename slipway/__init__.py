"""Slipway: checkout, images, Airflow and the wheel import each module by the name it has here.

docs/decisions/0046-one-import-path.md.
"""
