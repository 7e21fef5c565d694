"""`python -m bench.scale`: the releases of many models in a day, by simulation.

A discrete-event simulation (SimPy) of Airflow, GPUs and object store, from the numbers of numbers.py: each says where
it was measured, or that it is assumed. Prints these numbers, the queues of the simulation against closed forms, how
busy each resource is, what a release waits for, what each remedy changes with the same random numbers, and what changes
when an assumed number is half or double. Exits with 1 if a closed form is missed.
"""

import argparse
import os
import sys
from concurrent.futures import ProcessPoolExecutor

from rich.console import Console

from bench.scale import report
from bench.scale.closed_forms import compared
from bench.scale.study import FEW, REMEDIES, SCENARIOS, VARIED, simulate, varied

SEED, REPLICATIONS = 20, 4
WITHIN = 0.1
"""How far a mean of some ten thousand waits may be from its formula."""
WIDTH = 170


def main() -> int:
    """Print every table."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--seed", type=int, default=SEED)
    parser.add_argument("--replications", type=int, default=REPLICATIONS, choices=range(1, len(report.STUDENT) + 2))
    arguments = parser.parse_args()
    console = Console(width=None if sys.stdout.isatty() else WIDTH)
    setups = {(name, ""): setup for name, setup in SCENARIOS.items()}
    setups |= {(name, remedy): setup for name, each in REMEDIES.items() for remedy, setup in each.items()}
    seeds = range(arguments.seed, arguments.seed + arguments.replications)
    with ProcessPoolExecutor(os.cpu_count()) as pool:
        jobs = {key: [pool.submit(simulate, setup, seed) for seed in seeds] for key, setup in setups.items()}
        halves = {
            (name, by): pool.submit(simulate, varied(names, by), arguments.seed)
            for name, names in VARIED.items()
            for by in (0.5, 2.0)
        }
        rows = list(compared(arguments.seed))
        console.print(report.numbers(), report.closed_forms(rows, WITHIN))
        days = {key: [job.result() for job in each] for key, each in jobs.items()}
        report.print_all(console, days)
        console.print(report.sensitivity(days[FEW, ""][0], {key: job.result() for key, job in halves.items()}))
    print(f"seed {arguments.seed}, {arguments.replications} replications; ± is half an interval of 95 %")
    return 0 if all(row.off <= WITHIN for row in rows) else 1


if __name__ == "__main__":
    sys.exit(main())
