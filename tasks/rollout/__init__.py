"""From a published repository to traffic: pure decisions in blue_green.py, effects around it."""
