"""Pure decisions of a roll-out: what was observed goes in, one move comes out. No I/O."""
