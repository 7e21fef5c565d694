"""From a Triton request to an answer, whatever engine makes the tokens: checks, scheduling, streaming, cancellation."""
