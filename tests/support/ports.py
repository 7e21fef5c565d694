"""Ports of 127.0.0.1 for servers that bind them themselves."""

import random
import socket

BELOW_OUTGOING = range(20_000, 32_768)
"""Linux gives outgoing connections ports from 32768 on: between choosing and binding, one of those may be taken."""


def free_ports(count):
    ports = []
    for port in random.SystemRandom().sample(BELOW_OUTGOING, 1000):
        try:
            socket.create_server(("127.0.0.1", port)).close()
        except OSError:
            continue
        ports.append(port)
        if len(ports) == count:
            return ports
    raise AssertionError(f"no {count} free ports from {BELOW_OUTGOING.start} to {BELOW_OUTGOING.stop - 1}")
