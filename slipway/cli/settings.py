"""Where the command finds Airflow, the site and the cluster.

Options come first, then the environment. When neither an Airflow nor a site is given and the stack of this checkout
runs (`make up`), all of that stack is used: its Airflow, its site, its credentials and its KUBECONFIG together, so that
a command never reads from one place and acts on another.
"""

from collections.abc import MutableMapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING

from slipway.cli.airflow.login import Login
from slipway.cli.local_stack import FILE, read_local_stack
from slipway.tasks.adapters.hub.header_token import header_token
from slipway.tasks.contracts.errors import InputError

if TYPE_CHECKING:
    from slipway.cli.airflow.api import Airflow
    from slipway.cli.kube.api import KubeApi
    from slipway.tasks.adapters.kube.kube import Cluster
    from slipway.tasks.adapters.store.object_store import ObjectStore
    from slipway.tasks.contracts.site.site import Site
    from slipway.tasks.contracts.stored.artifact import Layout

AIRFLOW, USER, PASSWORD, TOKEN = (
    "SLIPWAY_AIRFLOW",
    "SLIPWAY_AIRFLOW_USER",
    "SLIPWAY_AIRFLOW_PASSWORD",
    "SLIPWAY_AIRFLOW_TOKEN",
)
SITE = "SLIPWAY_SITE"
KUBECONFIG = "KUBECONFIG"
API_KEY = "SLIPWAY_API_KEY"


@dataclass(frozen=True)
class Settings:
    """Resolved once per command; a missing setting is an error only when a command needs it."""

    address: str | None = None
    login: Login = field(default_factory=Login)
    site_file: Path | None = None
    kubeconfig: Path | None = None
    api_key: str = field(default="", repr=False)
    """The key for models of sites with authentication."""
    local_stack: str | None = None
    """The state of this checkout's stack, which was looked up because neither an Airflow nor a site was given."""

    @classmethod
    def resolve(
        cls,
        environment: MutableMapping[str, str],
        *,
        airflow: str | None = None,
        site: Path | None = None,
        stack_file: Path = FILE,
    ) -> "Settings":
        """Combine options and `environment`, to which the stack of this checkout may add.

        Args:
            environment: that of this process, from which the S3 and Kubernetes clients read their settings.
            airflow: the option --airflow.
            site: the option --site.
            stack_file: what `make up` wrote for clients.

        Raises:
            InputError: the stack's file is damaged, or no header can hold the API key.
        """
        state = None
        if not any((airflow, site, environment.get(AIRFLOW), environment.get(SITE))):
            stack = read_local_stack(stack_file)
            environment.update(stack.environment)
            state = stack.state
        site_name, kubeconfig = environment.get(SITE), environment.get(KUBECONFIG)
        return cls(
            airflow or environment.get(AIRFLOW),
            Login(environment.get(USER), environment.get(PASSWORD), environment.get(TOKEN)),
            site or (Path(site_name) if site_name else None),
            Path(kubeconfig) if kubeconfig else None,
            header_token(environment.get(API_KEY, ""), API_KEY),
            state,
        )

    def airflow(self, timeout_s: float | None = None) -> "Airflow":
        """A connection to Airflow for a command that waits for `timeout_s` in all.

        Raises:
            InputError: no address is known.
        """
        if not self.address:
            raise self._missing("Airflow", AIRFLOW, "--airflow")
        # the HTTP client takes a third of a second to import, which `slipway ask` need not wait for
        from slipway.cli.airflow.api import Airflow  # noqa: PLC0415

        return Airflow(self.address, self.login, timeout_s)

    def site(self) -> "Site":
        """The site.

        Raises:
            InputError: none is known, or its file is not a valid site.
        """
        file = self.known_site_file()
        # the contracts take a fifth of a second to import, which `slipway ask --host` need not wait for
        from slipway.tasks.contracts.site.site import Site  # noqa: PLC0415
        from slipway.tasks.document_files import read_contract_file  # noqa: PLC0415

        return read_contract_file(Site, file)

    def known_site_file(self) -> Path:
        """The site's file, unread.

        Raises:
            InputError: none is known.
        """
        if self.site_file is None:
            raise self._missing("site", SITE, "--site")
        return self.site_file

    def site_text(self) -> str:
        """The text of the site's file, as pods read it. Call `site` first: it validates the file."""
        return self.site_file.read_text(encoding="utf-8") if self.site_file else ""

    def store(self) -> "tuple[ObjectStore, Layout]":
        """The site's object store, and the layout of its keys."""
        site = self.site()
        # boto3 takes half a second to import, which `slipway schema` need not wait for
        from slipway.tasks.adapters.store.s3 import S3ObjectStore  # noqa: PLC0415
        from slipway.tasks.contracts.stored.artifact import Layout  # noqa: PLC0415

        return S3ObjectStore(site.object_store), Layout(site.object_store.root)

    def cluster(self) -> "Cluster":
        """A client of the site's cluster, from KUBECONFIG."""
        site = self.site()
        from slipway.tasks.adapters.kube.kube import Cluster  # noqa: PLC0415 - as above, of the Kubernetes client

        # passed explicitly: the client reads KUBECONFIG only once, when it is imported
        return Cluster.connect(site, kubeconfig=self.kubeconfig)

    def kube_api(self) -> "KubeApi":
        """A small client of the site's cluster, for the few requests of `slipway ask`."""
        from slipway.cli.kube import kubeconfig  # noqa: PLC0415 - as above
        from slipway.cli.kube.api import KubeApi  # noqa: PLC0415

        site = self.site().kubernetes
        return KubeApi(kubeconfig.access(kubeconfig.files_of(self.kubeconfig), site.context), site.serving_namespace)

    def _missing(self, what: str, variable: str, option: str) -> InputError:
        stack = f", and the stack of this checkout {self.local_stack}" if self.local_stack else ""
        instead = ", or run `make up` for a stack on this machine" if self.local_stack else ""
        return InputError(
            f"no {what} is known: {variable} is not set, {option} is not given{stack}",
            remedy=f"Set {variable}{instead}.",
        )
