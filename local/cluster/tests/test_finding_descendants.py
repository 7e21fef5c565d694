"""What a shim finds of the processes of its container."""

import subprocess
import sys

from local.cluster.node import shim

CHILDREN = 1200
"""More than fit into the page that the kernel gives for one read."""
PROGRAM = f"""
import importlib.util, os
specification = importlib.util.spec_from_file_location("shim", {shim.__file__!r})
shim = importlib.util.module_from_spec(specification)
specification.loader.exec_module(shim)
reader, writer = os.pipe()
children = []
for _ in range({CHILDREN}):
    child = os.fork()
    if not child:
        os.close(writer)
        os.read(reader, 1)
        os._exit(0)
    children.append(child)
print(sorted(shim.descendants(os.getpid())) == sorted(children))
"""


def test_a_process_with_many_children_hides_none():
    done = subprocess.run([sys.executable, "-I", "-S", "-c", PROGRAM], capture_output=True, text=True, check=False)

    assert (done.stdout, done.stderr) == ("True\n", "")
