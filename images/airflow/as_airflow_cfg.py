"""Writes the settings of Airflow's Helm chart as the file that Airflow itself reads.

    python as_airflow_cfg.py settings.yaml > airflow.cfg

Standard library and PyYAML, which Airflow has.
"""  # noqa: INP001 - a script

import configparser
import sys
from pathlib import Path

import yaml


def main() -> None:
    """Convert the file that is named."""
    parser = configparser.ConfigParser(interpolation=None)
    parser.read_dict(yaml.safe_load(Path(sys.argv[1]).read_text())["config"])
    parser.write(sys.stdout)


if __name__ == "__main__":
    main()
