"""Engine kinds behind one protocol. Toolkits are imported inside methods."""
