"""Runs every command of `slipway` against servers that answer wrongly, with odd files, and on full disks.

    .slipway/envs/tasks/bin/python -m tests.hostile_cli [COUNT [SEED]]     prints what broke, and how many cases did

Each case is a process of its own, with limits on its time and its memory. It may end with any exit code that is
documented, and must explain itself: no traceback, no unexpected error, no control character for a terminal.
"""

import contextlib
import ctypes
import faulthandler
import importlib
import json
import multiprocessing
import os
import random
import re
import resource
import signal
import sys
import tempfile
import time
import traceback
from collections import Counter
from concurrent.futures import ProcessPoolExecutor
from dataclasses import dataclass
from functools import reduce
from http.server import BaseHTTPRequestHandler
from itertools import repeat
from pathlib import Path

from slipway.cli.__main__ import COMMANDS, main
from slipway.cli.runs.follow import ORDER
from tests.fakes.servers.airflow_server import PASSWORD, USER, AirflowServer, Frame, Script, ScriptedRun
from tests.fakes.servers.hostile_proxy import DEEP, SILENT, TERMINAL, TRANSPORTS, HostileProxy
from tests.fakes.servers.loopback_server import LoopbackServer
from tests.fakes.servers.triton_http import TritonHttpServer
from tests.unit.cli.runs import failed, promoted, refused

REPOSITORY = Path(__file__).resolve().parent.parent
CODES = frozenset({0, 1, 65, 70, 75, 124, 130})
DEADLINE_S = 150
"""A command without a time of its own asks Airflow three times for a run, each time for at most 30 s."""
MEMORY_BYTES = 1 << 30
AT_ONCE = 8
"""Most of a case is waiting for a server that says nothing."""
RAW = re.compile("[\x00-\x08\x0b-\x1f\x7f-\x9f\u202a-\u202e\u2066-\u2069]")
UNEXPECTED = ("unexpected error", "does not fit into memory")
ANSWER = [{"text_output": f"Par{TERMINAL}"}, {"text_output": "is.", "finish_reason": "stop", "completion_tokens": 2}]
ODD = "odd"
PR_SET_PDEATHSIG = 1
SLOWEST = 5
"""How many of the cases that took longest are printed."""
ODD_NUMBERS = ("nan", "inf", "-inf", "-1", "0", "1e400", "99999999999999999999")
AIRFLOW_COMMANDS = (
    ("release", "demo", "--timeout", "5"),
    ("release", "demo", "--no-wait"),
    ("plan", "demo", "--timeout", "5"),
    ("plan", "demo", "--json", "--timeout", "5"),
    ("status", "demo"),
    ("status",),
    ("doctor", "--site", "{site}"),
    ("logs", "demo"),
    ("logs", "demo", "plan"),
    ("cancel", "demo"),
    ("approve", "demo", "--timeout", "5"),
    ("rollback", "demo", "--reason", "slow", "--timeout", "5"),
    ("restore", "demo", "--timeout", "5"),
    ("gc", "--timeout", "5"),
)
NUMBERS = (
    ("release", "demo", "--timeout", "{}"),
    ("status", "demo", "--watch", "--every", "{}"),
    ("ask", "demo", "q", "--temperature", "{}", "--host", "{triton}"),
    ("ask", "demo", "q", "--top-p", "{}", "--host", "{triton}"),
    ("ask", "demo", "q", "--seed", "{}", "--host", "{triton}"),
    ("ask", "demo", "q", "--max-tokens", "{}", "--host", "{triton}"),
    ("ask", "demo", "q", "--timeout", "{}", "--host", "{triton}"),
    ("batch", "demo", "{prompts}", "-o", "{new}", "--rate", "{}", "--host", "{triton}"),
    ("batch", "demo", "{prompts}", "-o", "{new}", "--timeout", "{}", "--host", "{triton}"),
    ("gc", "--timeout", "{}"),
)
HUB_COMMANDS = (
    ("--site", "{hub site}", "release", "demo", "--revision", "v1", "--timeout", "5"),
    ("--site", "{hub site}", "init", "acme/model", "-o", "{new}"),
)
TRITON_COMMANDS = (
    ("ask", "demo", "q", "--host", "{triton}", "--stats", "--timeout", "{seconds}"),
    ("ask", "demo", "q", "--host", "{triton}", "--no-stream", "--timeout", "{seconds}"),
    ("batch", "demo", "{prompts}", "-o", "{new}", "--host", "{triton}", "--attempts", "1", "--timeout", "{seconds}"),
    (
        "compare",
        "demo@{triton}",
        "demo@{triton}",
        "{prompts}",
        "--html",
        "{new}",
        "--attempts",
        "1",
        "--timeout",
        "{seconds}",
    ),
)
FILE_COMMANDS = (
    ("validate", "{}"),
    ("migrate", "{}"),
    ("--site", "{}", "setup", "--render"),
    ("doctor", "--image-contract", "--site", "{}"),
    ("doctor", "--images", "--site", "{}"),
    ("ask", "demo", "--messages", "{}", "--host", "{triton}"),
    ("batch", "demo", "{}", "-o", "{new}", "--host", "{triton}"),
    ("batch", "demo", "{prompts}", "-o", "{}", "--host", "{triton}"),
    ("compare", "demo@{triton}", "demo@{triton}", "{}"),
    ("compare", "demo@{triton}", "demo@{triton}", "{prompts}", "--html", "{}"),
    ("--site", "{site}", "import", "--from", "{}"),
    ("--site", "{site}", "export", "demo", "--to", "{}"),
    ("--site", "{site}", "setup", "--iam-policies", "{}"),
    ("--site", "{}", "status", "demo"),
    ("--site", "{}", "init", "acme/model"),
    ("plan", "{}"),
)
FULL_COMMANDS = (
    ("schema",),
    ("validate", "{site}"),
    ("migrate", "{spec}"),
    ("--site", "{site}", "setup", "--render"),
    ("doctor", "--image-contract"),
    ("status", "demo"),
    ("release", "demo", "--timeout", "5"),
    *TRITON_COMMANDS,
)


@dataclass(frozen=True)
class Case:
    """A command, and what is wrong about the world around it."""

    command: tuple[str, ...]
    kubeconfig: str | None = None
    stdout_full: bool = False
    proxied: bool = False
    hub: str | None = None
    """How the answers of the site's Hub are wrong."""
    harmless: bool = False
    """Nothing is wrong: it must end with 0. Else a command that always ends too early would pass every other case."""


@dataclass(frozen=True)
class Ended:
    """How a case ended. `problem` is empty if it ended as it should."""

    case: Case
    problem: str
    detail: str
    seconds: float


def cases(count, seed, files):
    """Every fixed case, and `count` cases with a wrong answer."""
    fixed = [Case(_with(command, number)) for command in NUMBERS for number in ODD_NUMBERS]
    fixed += [Case(_with(command, str(file))) for command in FILE_COMMANDS for file in files]
    fixed += [Case(("--site", "{site}", "ask", "demo", "q"), kubeconfig=str(file)) for file in files]
    fixed += [Case(command, stdout_full=True) for command in FULL_COMMANDS]
    fixed += [Case(command, hub=wrong) for command in HUB_COMMANDS for wrong in (SILENT, "value", *TRANSPORTS)]
    rng = random.Random(seed)  # noqa: S311
    if count < len(fixed):
        fixed = rng.sample(fixed, count)
    proxied = [Case(rng.choice(AIRFLOW_COMMANDS + TRITON_COMMANDS), proxied=True) for _ in range(count)]
    return [*fixed, *proxied, *(Case(command, harmless=True) for command in TRITON_COMMANDS)]


def odd_files(folder):
    """Files in a new folder that are not what a command reads."""
    folder.mkdir()
    texts = {
        "deep.json": "[" * DEEP + "]" * DEEP,
        "deep.jsonl": '{"prompt": ' + "[" * DEEP + "]" * DEEP + "}\n",
        "deep-messages.json": '[{"role": "user", "content": ' + "[" * DEEP + "]" * DEEP + "}]",
        "null": "null",
        "ones": "[1]",
        "surrogate.jsonl": '{"prompt": "\\ud800"}\n',
        "messages.json": '[{"role": "user", "content": "\\ud800"}]',
        "number.json": "1" + "0" * 400,
        "empty": "",
        "terminal": TERMINAL,
    }
    for name, text in texts.items():
        (folder / name).write_text(text, encoding="utf-8")
    (folder / "latin-1").write_bytes(b"\xff\xfe\x00")
    (folder / "loop").symlink_to(folder / "loop")
    os.mkfifo(folder / "fifo")
    (folder / "folder").mkdir()
    (folder / "tty\x1b[2J").write_text("{}")
    made = sorted(folder.iterdir())
    return [*made, Path("/dev/zero"), Path("/dev/full"), folder / "missing", folder / ("x" * 300)]


def _with(command, value):
    return tuple(part.replace("{}", value) for part in command)


def scripts(seed):
    """Runs of every DAG that a command starts: one that is promoted, one that fails, or one that waits for a person."""
    waiting = Script([Frame("running", dict.fromkeys(ORDER, "success") | {"approval": "awaiting_input"})])
    hostile = failed("publish", "InputError", f"no such {TERMINAL}", f"Do {TERMINAL}.")
    script = (promoted(), refused(), hostile, waiting)[seed % 4]
    script.description = "acme/model → none → vllm"
    return dict.fromkeys(("release__demo", "rollback__demo", "retention"), script)


class OneRevision(BaseHTTPRequestHandler):
    """A Hub that knows a revision of a model, and has none of its files."""

    def do_GET(self):
        """Answer with the revision."""
        model = {"id": "acme/model", "sha": "a" * 40, "siblings": []}
        body = json.dumps(model).encode()
        self.send_response(200 if "/revision/" in self.path else 404)
        self.send_header("Content-Length", str(len(body)))
        self.end_headers()
        self.wfile.write(body)

    def log_message(self, *_):
        """Print nothing."""


def run_case(case, seed, shared):
    """Run one case against servers of its own.

    The command's process is forked before they start: a thread of theirs might hold a lock that it needs.
    """
    command = Forked()
    with contextlib.ExitStack() as stack:
        folder = Path(stack.enter_context(tempfile.TemporaryDirectory(dir=shared)))
        odd_files(folder / ODD)  # a command may write to them
        airflow = stack.enter_context(AirflowServer(dags=scripts(seed)))
        if case.command[0] in {"approve", "cancel", "logs", "status"}:
            name, script = "release__demo", airflow.dags["release__demo"]
            airflow.runs[name, "manual__0"] = ScriptedRun("manual__0", {}, script, frame=9)
        triton = stack.enter_context(TritonHttpServer(answers=ANSWER))
        ports = {"airflow": _port(airflow.address), "triton": triton.port}
        proxies = {}
        if case.hub:
            ports = {"hub": _port(stack.enter_context(LoopbackServer(OneRevision)).endpoint), **ports}
            proxies = {"hub": stack.enter_context(HostileProxy(ports["hub"], seed, case.hub))}
        if case.proxied:
            proxies = {name: stack.enter_context(HostileProxy(port, seed)) for name, port in ports.items()}
        hosts = {name: proxies[name].host if name in proxies else f"127.0.0.1:{port}" for name, port in ports.items()}
        places = {
            "{triton}": hosts["triton"],
            str(shared / ODD): str(folder / ODD),
            "{prompts}": str(shared / "prompts.jsonl"),
            "{new}": str(folder / "new"),
            "{seconds}": str(DEADLINE_S) if case.harmless else "3",
            "{site}": str(REPOSITORY / "sites/kind.yaml"),
            "{spec}": str(REPOSITORY / "specs/llama-3-8b-awq-l4.yaml"),
        }
        if case.hub:
            places["{hub site}"] = _site_with_hub(folder, f"http://{hosts['hub']}")

        def placed(text):
            return reduce(lambda found, place: found.replace(*place), places.items(), text)

        environment = {
            "PATH": os.defpath,
            "SLIPWAY_AIRFLOW": f"http://{hosts['airflow']}",
            "SLIPWAY_AIRFLOW_USER": USER,
            "SLIPWAY_AIRFLOW_PASSWORD": PASSWORD,
            "KUBECONFIG": placed(case.kubeconfig or str(folder / "none")),
            "AWS_ACCESS_KEY_ID": "a",
            "AWS_SECRET_ACCESS_KEY": "b",
            "AWS_MAX_ATTEMPTS": "1",
            "COLUMNS": "200",
        }
        if case.command[0] == "status":
            environment["SLIPWAY_SITE"] = places["{site}"]
        began = time.monotonic()
        problem, detail = command.run([*map(placed, case.command)], environment, folder, case)
        seconds = time.monotonic() - began
        wrong = "; ".join(proxy.what for proxy in proxies.values() if proxy.answers > proxy.at)
        return Ended(case, problem, f"{wrong}: {detail}" if wrong else detail, seconds)


def _port(address):
    return int(address.rpartition(":")[2])


def _site_with_hub(folder, endpoint):
    site = folder / "hub.yaml"
    site.write_text((REPOSITORY / "sites/kind.yaml").read_text(encoding="utf-8") + f"hub: {{endpoint: {endpoint}}}\n")
    return str(site)


class Forked:
    """A process that becomes a command once it is told which."""

    def __init__(self):
        told, self._tell = os.pipe()
        self._pid = os.fork()
        if self._pid == 0:
            os.close(self._tell)
            try:
                with os.fdopen(told, encoding="utf-8") as stream:
                    _be_the_command(*json.load(stream))
            finally:
                os._exit(99)
        os.close(told)

    def run(self, arguments, environment, folder, case):
        """How it ended that did not end as it should, else two empty texts."""
        out, err = folder / "out", folder / "err"
        with os.fdopen(self._tell, "w", encoding="utf-8") as stream:
            json.dump([arguments, environment, "/dev/full" if case.stdout_full else str(out), str(err)], stream)
        deadline = time.monotonic() + DEADLINE_S
        while True:
            ended, status = os.waitpid(self._pid, os.WNOHANG)
            if ended:
                break
            if time.monotonic() > deadline:
                os.kill(self._pid, signal.SIGABRT)  # faulthandler says where it was
                os.waitpid(self._pid, 0)
                return "hang", f"{' '.join(arguments)}: {err.read_text(errors='replace')}"
            time.sleep(0.01)
        printed = err.read_text(encoding="utf-8", errors="surrogateescape")
        shown = printed + ("" if case.stdout_full else out.read_text(encoding="utf-8", errors="surrogateescape"))
        return _judged(os.waitstatus_to_exitcode(status), {0} if case.harmless else CODES, printed, shown)


def _judged(code, codes, printed, shown):
    last = (printed.strip().splitlines() or [""])[-1][:200]
    if "Traceback" in printed:
        return "traceback", last
    if code not in codes:
        return f"exit {code}", last
    if any(words in printed for words in UNEXPECTED):
        return "unexpected", printed.strip()[:300]
    if raw := RAW.search(shown):
        return f"raw U+{ord(raw[0]):04X}", repr(shown[max(0, raw.start() - 60) : raw.end() + 20])
    if code and not printed.strip() and code in {65, 70, 75} and not shown.strip():
        return "no word", f"exit {code}"
    return "", ""


def _be_the_command(arguments, environment, out, err):
    try:
        resource.setrlimit(resource.RLIMIT_DATA, (MEMORY_BYTES, MEMORY_BYTES))
        for number, path in enumerate(("/dev/null", out, err)):
            descriptor = os.open(path, os.O_RDONLY if not number else os.O_WRONLY | os.O_CREAT | os.O_TRUNC, 0o600)
            os.dup2(descriptor, number)
        sys.stdin = open(0, encoding="utf-8", closefd=False)  # noqa: SIM115
        sys.stdout = open(1, "w", encoding="utf-8", closefd=False)  # noqa: SIM115
        sys.stderr = open(2, "w", encoding="utf-8", closefd=False, buffering=1)  # noqa: SIM115
        faulthandler.enable()
        sys.argv = ["slipway", *arguments]
        os.environ.clear()
        os.environ.update(environment)
        signal.signal(signal.SIGINT, signal.default_int_handler)
        code = 0
        try:
            main()
        except SystemExit as ended:
            code = int(ended.code or 0)
        except BaseException:  # noqa: BLE001 - as the interpreter does
            traceback.print_exc()
            code = 1
        try:
            sys.stdout.flush()
        except OSError:
            traceback.print_exc()
            code = 120
        sys.stderr.flush()
        os._exit(code)
    finally:
        os._exit(99)


def _die_with(parent):
    """End this process when its parent does, which may be killed."""
    ctypes.CDLL(None).prctl(PR_SET_PDEATHSIG, signal.SIGKILL, 0, 0, 0)
    if os.getppid() != parent:
        os._exit(99)


def run(count, seed):
    """Run the cases; how each ended."""
    for module in {
        *COMMANDS.values(),
        "slipway.cli.airflow.api",
        "slipway.cli.ask.generate",
        "slipway.cli.kube.api",
        "httpx",
        "boto3",
        "kubernetes",
    }:
        importlib.import_module(module)
    with tempfile.TemporaryDirectory(prefix="slipway-hostile-") as name:
        folder = Path(name)
        (folder / "prompts.jsonl").write_text('{"prompt": "a"}\n{"prompt": "b"}\n')
        chosen = cases(count, seed, odd_files(folder / ODD))
        seeds = range(seed, seed + len(chosen))
        context = multiprocessing.get_context("fork")
        with ProcessPoolExecutor(AT_ONCE, context, _die_with, (os.getpid(),)) as processes:
            return list(processes.map(run_case, chosen, seeds, repeat(folder)))


def _command_line(arguments):
    count = int(arguments[0]) if arguments else 1000
    seed = int(arguments[1]) if arguments[1:] else time.time_ns() % 10**9
    ended = run(count, seed)
    broken = [each for each in ended if each.problem]
    for each in broken:
        print(json.dumps([each.problem, " ".join(each.case.command), each.case.kubeconfig, each.detail[:300]]))
    for each in sorted(ended, key=lambda each: -each.seconds)[:SLOWEST]:
        print(f"{each.seconds:6.1f} s  {' '.join(each.case.command)}  {each.detail[:300]}")
    print(f"seed {seed}: {len(ended)} cases, {len(broken)} broken: {dict(Counter(each.problem for each in broken))}")
    return bool(broken)


if __name__ == "__main__":
    sys.exit(_command_line(sys.argv[1:]))
