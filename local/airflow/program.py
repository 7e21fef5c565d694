"""`python -m local.airflow.program scheduler ...`: Airflow's command, which rarely looks for garbage.

Importing makes objects that stay. Looking for garbage among them took a fifth of the CPU time of Airflow's imports, in
each of its services; slipway/tasks/__main__.py does the same for steps. An API server then makes its routes, which stay
too: with Python's own thresholds a stack takes 15.2 CPU s until it answers, with these 14.3 and 20 MB more of 1,240. It
runs in Airflow's environment.
"""

import gc
import importlib
import sys

IMPORTS = {
    "api-server": ("airflow.cli.commands.api_server_command", "airflow.api_fastapi.app"),
    "scheduler": ("airflow.cli.commands.scheduler_command", "airflow.executors.local_executor"),
    "dag-processor": ("airflow.cli.commands.dag_processor_command",),
    "triggerer": ("airflow.cli.commands.triggerer_command",),
}
"""What each command imports before it does anything else."""

if __name__ == "__main__":
    gc.disable()
    main = importlib.import_module("airflow.__main__").main
    for module in IMPORTS.get(sys.argv[1], ()):
        importlib.import_module(module)
    gc.freeze()
    gc.set_threshold(100_000, 20, 100)
    gc.enable()
    sys.exit(main())
