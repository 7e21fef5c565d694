"""The embedded stack of this checkout, as `make up` describes it to the command in `.slipway/stack/client.json`.

`{"state": "running", "environment": {...}}` holds what a client needs: addresses, the site, KUBECONFIG and
credentials. `make down` replaces it by `{"state": "stopped"}`. local/client_file.py writes it; the two share no code.
"""

import json
from dataclasses import dataclass, field
from pathlib import Path

from slipway.tasks.contracts.errors import InputError

REPOSITORY = Path(__file__).resolve().parents[2]
FILE = REPOSITORY / ".slipway" / "stack" / "client.json"
MAKEFILE = REPOSITORY / "Makefile"
"""A wheel has none."""

RUNNING = "is running"
STATES = {"running": RUNNING, "stopped": "was stopped"}


@dataclass(frozen=True)
class LocalStack:
    """The state of the stack, and the environment of its clients while it runs."""

    state: str | None
    """None where there is no checkout, as beside an installed wheel."""
    environment: dict[str, str] = field(default_factory=dict, repr=False)


def read_local_stack(file: Path = FILE) -> LocalStack:
    """The stack that `file` describes.

    Raises:
        InputError: the file is damaged, or belongs to another version.
    """
    try:
        document = json.loads(file.read_text(encoding="utf-8"))
        state = STATES[document["state"]]
        environment = document["environment"] if state == RUNNING else {}
        return LocalStack(state, {str(name): str(value) for name, value in environment.items()})
    except FileNotFoundError:
        return LocalStack("was never started" if MAKEFILE.exists() else None)
    except (OSError, ValueError, LookupError, TypeError, AttributeError) as error:
        raise InputError(
            f"{file} does not describe a stack",
            found=error,
            remedy="Run `make up` to write it again, or set SLIPWAY_AIRFLOW and SLIPWAY_SITE.",
        ) from error
