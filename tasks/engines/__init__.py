"""One file per engine kind behind one protocol. Toolkits are imported inside methods."""
