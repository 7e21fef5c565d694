"""The only doors to the outside: one vendor client per module, vendor errors translated at the edge."""
