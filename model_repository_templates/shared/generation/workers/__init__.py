"""Processes with limits for what a client or a model's author could make last, and the program they run."""
