"""From a published repository to traffic: pure decisions in machine.py, effects around it."""
