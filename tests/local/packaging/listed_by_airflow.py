"""What an Airflow lists of the wheel and of its DAGs folder, as one line of JSON. Runs in that Airflow's environment."""

import importlib
import io
import json
import pkgutil
import sys
from contextlib import redirect_stdout

from airflow.cli.cli_parser import get_parser
from airflow.utils.session import create_session

import slipway.airflow
from slipway.airflow.page.doing import person
from slipway.tasks.pages.models import window
from slipway.tasks.pages.templates import render


def listed(*words):
    """What a command of Airflow prints, read as JSON."""
    arguments = get_parser().parse_args([*words, "--output", "json"])
    with redirect_stdout(io.StringIO()) as printed:
        arguments.func(arguments)
    return json.loads(printed.getvalue().strip().splitlines()[-1])


def run(*words):
    arguments = get_parser().parse_args(words)
    with redirect_stdout(sys.stderr):
        arguments.func(arguments)


modules = [each.name for each in pkgutil.walk_packages(slipway.airflow.__path__, "slipway.airflow.")]
for name in modules:
    importlib.import_module(name)
run("db", "migrate")
run("dags", "reserialize")
with create_session() as session:  # as every page asks who reads it
    person(None, ["release__demo"], session)
found = {
    "dags": sorted(each["dag_id"] for each in listed("dags", "list")),
    "errors": listed("dags", "list-import-errors"),
    "plugins": [each["name"] for each in listed("plugins")],
    "providers": {each["package_name"]: each["version"] for each in listed("providers", "list")},
    "page": render("models.html.j2", window=window([], 1), rows=[]),
    "own": sorted({module.__file__ for name, module in sys.modules.items() if name.split(".")[0] == "slipway"}),
}
print(json.dumps(found))
