"""The moves that plan a release: resolve it, check it, key its stages, preview what it will take.

slipway/tasks/steps/plan.py makes them in this order, and writes what they say. None of them writes to the store.
"""
