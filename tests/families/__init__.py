"""Plans public models of every family on every GPU for every GPU engine, and writes the result down as docs/models.md.

- models.yaml: the models and GPUs, with their sources; records.py reads it and makes a site that has the GPUs
- planning.py: one model on one GPU, through plan's own checks; rendering.py: what is rendered of it
- reasons.yaml: the refusals that were looked up and found true
- page.py: the page. `.slipway/envs/tasks/bin/python -m tests.families` writes it
"""
