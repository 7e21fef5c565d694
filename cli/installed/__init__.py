"""The `slipway` package of the wheel: starts the command from the packages below slipway/lib (docs/decisions/0017)."""

import sys
from pathlib import Path

LIBRARY = Path(__file__).with_name("lib")


def main() -> None:
    """Run the `slipway` command."""
    sys.path.insert(0, str(LIBRARY))
    from cli.__main__ import main as command  # noqa: PLC0415 - found only once the path is set

    command()
