"""What a request becomes: inputs of a served model, a grammar, the pieces of its answer, and metrics of it."""
