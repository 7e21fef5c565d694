"""The step operator, what it needs, and the DAGs that are made of it."""
