"""Plans public models on every GPU for every GPU engine, and writes docs/models.md: `python -m bench.models`.

- models.yaml: the models and GPUs, with their sources; records.py makes a site that has the GPUs, hub.py a Hub
- planning.py: one model on one GPU, through plan's own checks
- reasons.yaml: the refusals that were looked up and proved true
- new_families.yaml: families since late 2025, judged by class and layers alone
- cpu.yaml: what tests/local/families measured of each family on a CPU
- page.py: the page
"""
