"""What `python -m slipway.tasks` runs with a site file: steps, the leader of a server over nodes, an exporter."""

import secrets
import sys
import tempfile
from argparse import Namespace
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Never

from slipway.tasks import arguments as command_line
from slipway.tasks import jobs
from slipway.tasks.adapters.clock import SystemClock
from slipway.tasks.adapters.store.s3 import S3ObjectStore
from slipway.tasks.adapters.telemetry import log_lines
from slipway.tasks.contracts.site.site import Site
from slipway.tasks.contracts.stored.artifact import Layout
from slipway.tasks.contracts.wire import exposition
from slipway.tasks.document_files import read_contract_file


def run(arguments: Sequence[str], environment: Mapping[str, str], *, description: str | None) -> str:
    """Run the requested program and return one line about what it did.

    Raises:
        InputError: an argument is wrong or missing, or there is no site file.
    """
    parsed = command_line.parse(arguments, environment, description=description)
    site = read_contract_file(Site, parsed.site)
    log_lines.configure(site.telemetry.logs, sys.stdout, {"step": parsed.step})
    if parsed.step == command_line.LEAD:
        _lead(parsed, site, environment)
    if parsed.step == command_line.EXPORT_METRICS:
        return _export_metrics(parsed, site)
    return jobs.run(parsed, site, environment)


def _lead(parsed: Namespace, site: Site, environment: Mapping[str, str]) -> Never:
    """Wait for the group's pods and become mpirun, so that the process ends with the server's own exit code."""
    from slipway.tasks.adapters.kube.kube import Cluster
    from slipway.tasks.adapters.process import become
    from slipway.tasks.serving.pod.lead import PUBLIC_KEY, command, multinode_server

    folder = Path(environment.get("SLIPWAY_SCRATCH") or tempfile.gettempdir())
    cluster = Cluster.connect(site)
    server = multinode_server(parsed, site.telemetry, control_key=secrets.token_hex(16))
    become(command(server, cluster, SystemClock(), public_key=PUBLIC_KEY, folder=folder, environment=environment))


def _export_metrics(parsed: Namespace, site: Site) -> str:
    """Serve the metrics of all channels until the process is told to end."""
    from slipway.tasks.adapters.telemetry.metrics_server import MetricsServer
    from slipway.tasks.rollout.act.channel_metrics import ChannelMetrics

    channels = ChannelMetrics(S3ObjectStore(site.object_store), Layout(site.object_store.root))
    with MetricsServer(parsed.host, parsed.port, lambda: exposition.text(channels.read()), SystemClock()) as server:
        server.serve_forever()
    return "ended"
