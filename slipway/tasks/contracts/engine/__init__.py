"""What an engine kind can do: formats, adapters, sampling, scaling, speculation, GPU shares. No spec fields."""
