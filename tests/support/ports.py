"""Ports of 127.0.0.1 for servers that bind them themselves."""

from local.processes import free_port


def free_ports(count):
    ports = set()
    while len(ports) < count:
        ports.add(free_port())
    return list(ports)
