"""Processes of serving pods that `python -m slipway.tasks` runs besides steps: a leader, preStop hooks, OpenAI's API.

One more has a pod of its own: the exporter of the channels' metrics.
"""

import secrets
import tempfile
from argparse import Namespace
from collections.abc import Mapping
from pathlib import Path
from typing import Never

from slipway.tasks.adapters.clock import SystemClock
from slipway.tasks.contracts.site.site import Site
from slipway.tasks.contracts.stored.artifact import Layout
from slipway.tasks.contracts.wire import exposition
from slipway.tasks.serving.openai_api import process as openai_process
from slipway.tasks.serving.pod.await_ranks import await_ranks as await_own_ranks
from slipway.tasks.serving.pod.drain import drain as drain_front
from slipway.tasks.serving.pod.lead import PUBLIC_KEY, command, multinode_server


def lead(parsed: Namespace, site: Site, environment: Mapping[str, str]) -> Never:
    """Wait for the group's pods and become mpirun, so that the process ends with the server's own exit code."""
    from slipway.tasks.adapters.kube.kube import Cluster
    from slipway.tasks.adapters.process import become

    folder = Path(environment.get("SLIPWAY_SCRATCH") or tempfile.gettempdir())
    cluster = Cluster.connect(site)
    server = multinode_server(parsed, site.telemetry, control_key=secrets.token_hex(16))
    become(command(server, cluster, SystemClock(), public_key=PUBLIC_KEY, folder=folder, environment=environment))


def drain(parsed: Namespace) -> str:
    """Empty the pod's front and end it; return a summary for the log."""
    from slipway.tasks.adapters.kube.front import EnvoyFront

    return drain_front(EnvoyFront(parsed.front), SystemClock(), leave_s=parsed.leave_s, requests_s=parsed.requests_s)


def await_ranks(parsed: Namespace) -> str:
    """Wait until no rank runs in this container; return a summary for the log."""
    from slipway.tasks.adapters.process import is_running

    return await_own_ranks(is_running, SystemClock(), at_most_s=parsed.at_most_s)


def openai(parsed: Namespace) -> str:
    """Answer OpenAI's API until the process is told to end."""
    openai_process.serve(parsed)
    return "ended"


def export_metrics(parsed: Namespace, site: Site) -> str:
    """Serve the metrics of all channels until the process is told to end."""
    from slipway.tasks.adapters.store.s3 import S3ObjectStore
    from slipway.tasks.adapters.telemetry.metrics_server import MetricsServer
    from slipway.tasks.rollout.act.channel_metrics import ChannelMetrics

    channels = ChannelMetrics(S3ObjectStore(site.object_store), Layout(site.object_store.root))
    with MetricsServer(parsed.host, parsed.port, lambda: exposition.text(channels.read()), SystemClock()) as server:
        server.serve_forever()
    return "ended"
