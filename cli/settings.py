"""Where the command finds Airflow, the site and the cluster.

Options come first, then the environment. When neither an Airflow nor a site is given and this checkout's own stack was
started (`make up`), all of that stack is used: its Airflow, its site, its credentials and its KUBECONFIG together, so
that a command never reads of one place and acts on another.
"""

from collections.abc import MutableMapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any

import yaml

from cli.airflow_api import Airflow, Login
from tasks.contracts.artifact import Layout
from tasks.contracts.base import read_contract
from tasks.contracts.errors import InputError
from tasks.contracts.site import Site

if TYPE_CHECKING:
    from tasks.adapters.kube import Cluster
    from tasks.adapters.object_store import ObjectStore

AIRFLOW, USER, PASSWORD, TOKEN = (
    "SLIPWAY_AIRFLOW",
    "SLIPWAY_AIRFLOW_USER",
    "SLIPWAY_AIRFLOW_PASSWORD",
    "SLIPWAY_AIRFLOW_TOKEN",
)
SITE = "SLIPWAY_SITE"
KUBECONFIG = "KUBECONFIG"
HOW = "give it, or run `make up` for a stack on this machine"


@dataclass(frozen=True)
class Settings:
    """Resolved once per command; what is missing is missed only when it is needed."""

    address: str | None = None
    login: Login = field(default_factory=Login)
    site_file: Path | None = None
    kubeconfig: Path | None = None

    @classmethod
    def resolve(
        cls, environment: MutableMapping[str, str], *, airflow: str | None = None, site: Path | None = None
    ) -> "Settings":
        """From options and `environment`, which the laptop's stack may add to.

        Args:
            environment: that of this process: the clients of S3 and Kubernetes read theirs from it.
            airflow: the option --airflow.
            site: the option --site.
        """
        given = (airflow, site, environment.get(AIRFLOW), environment.get(SITE))
        if not any(given):
            environment.update(_of_the_laptop())
        site_name, kubeconfig = environment.get(SITE), environment.get(KUBECONFIG)
        return cls(
            airflow or environment.get(AIRFLOW),
            Login(environment.get(USER), environment.get(PASSWORD), environment.get(TOKEN)),
            site or (Path(site_name) if site_name else None),
            Path(kubeconfig) if kubeconfig else None,
        )

    def airflow(self) -> Airflow:
        """A connection to Airflow.

        Raises:
            InputError: no address is known.
        """
        if not self.address:
            raise InputError(f"no Airflow is known: {AIRFLOW} is not set and --airflow is not given; {HOW}.")
        return Airflow(self.address, self.login)

    def site(self) -> Site:
        """The site.

        Raises:
            InputError: none is known, or its file is no valid site.
        """
        if self.site_file is None:
            raise InputError(f"no site is known: {SITE} is not set and --site is not given; {HOW}.")
        return read_contract(Site, read_yaml(self.site_file), str(self.site_file))

    def store(self) -> "tuple[ObjectStore, Layout]":
        """The site's object store, and where things lie in it."""
        site = self.site()
        # boto3 takes half a second to import, which `slipway schema` should not pay
        from tasks.adapters.object_store import S3ObjectStore  # noqa: PLC0415

        return S3ObjectStore(site.object_store), Layout(site.object_store.root)

    def cluster(self) -> "Cluster":
        """The site's cluster, by KUBECONFIG."""
        site = self.site()
        from tasks.adapters.kube import Cluster  # noqa: PLC0415 - as above, of the Kubernetes client

        # given, for the client reads KUBECONFIG only once, when it is imported
        return Cluster.connect(site, kubeconfig=self.kubeconfig)


def read_yaml(path: Path) -> Any:
    """What a YAML file holds.

    Raises:
        InputError: it cannot be read, or is no YAML; the message names line and column.
    """
    try:
        return yaml.safe_load(path.read_text(encoding="utf-8"))
    except OSError as error:
        raise InputError(f"{path}: {error.strerror}, expected a YAML file. Check the path.") from error
    except UnicodeDecodeError as error:
        raise InputError(f"{path}: byte {error.start} is not UTF-8, expected a YAML file in UTF-8.") from error
    except yaml.MarkedYAMLError as error:
        mark = error.problem_mark or error.context_mark
        where = f"{path}:{mark.line + 1}:{mark.column + 1}" if mark else str(path)
        raise InputError(f"{where}: no YAML: {error.problem or error.context}. Correct that line.") from error
    except yaml.YAMLError as error:
        raise InputError(f"{path}: no YAML: {error}. Correct the file.") from error


def _of_the_laptop() -> dict[str, str]:
    # imported here: an installation for CI has no laptop stack
    try:
        from local.stack import DEFAULT_FOLDER, Stack  # noqa: PLC0415
    except ImportError:
        return {}
    if not (DEFAULT_FOLDER / "stack.json").exists():
        return {}
    try:
        return Stack(DEFAULT_FOLDER).client_environment()
    except OSError as error:
        raise InputError(
            f"the stack in {DEFAULT_FOLDER} was never started ({error.strerror}: {error.filename}). Run `make up`."
        ) from error
