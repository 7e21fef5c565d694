"""One module per step: in which order one step works."""
