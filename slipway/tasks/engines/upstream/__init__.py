"""What upstream's own files say of models, by version: tables that plan reads, and nothing else."""
