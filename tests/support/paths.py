"""Where things are."""

from pathlib import Path

REPOSITORY = Path(__file__).resolve().parents[2]
ENVIRONMENTS = REPOSITORY / ".slipway" / "envs"
HUB = REPOSITORY / "tests" / "fixtures" / "hub"
"""The demo's repositories and datasets, as the local Hub serves them."""
