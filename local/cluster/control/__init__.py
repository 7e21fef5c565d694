"""Controllers: workloads, availability, garbage collection."""
