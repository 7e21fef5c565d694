"""Pure decisions of a rollout: what was observed goes in, one move comes out. No I/O."""
