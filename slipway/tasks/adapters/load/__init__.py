"""Load on a server: clients, arrival times, processes, and what came back."""
