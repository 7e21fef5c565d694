"""What Airflow's own logs say of a test that failed; its stack is gone when a person reads the report."""

import json
import re
from datetime import UTC, datetime

from tests.support.walking import below

KEPT_LINES = 40
EXCEPTION = re.compile(r"^(?:[\w.]*\.)?\w*(?:Error|Exception)\b.*")
SERVED = "Could not read served logs"  # Airflow asks for a log that another host may serve before it reads its own


def errors_since(folder, began_at):
    """Errors of the tasks and exceptions of the services in a stack's folder since a time in seconds of the epoch."""
    lines = [
        line for file in _written_since(folder / "airflow" / "logs", began_at) for line in _of_a_task(file, began_at)
    ]
    for file in _written_since(folder / "logs", began_at):
        lines += [f"{file.stem}: {line}" for line in _of_a_service(file, began_at)]
    return lines[-KEPT_LINES:]


def _written_since(folder, began_at):
    return sorted(file for file, status in below(folder) if file.suffix == ".log" and status.st_mtime >= began_at)


def _of_a_task(file, began_at):
    task = next((part for part in file.parts if part.startswith("task_id=")), file.stem)
    for line in file.read_text(errors="replace").splitlines():
        try:
            record = json.loads(line)
        except ValueError:
            continue
        if record.get("level") in {"error", "critical"} and _at(record.get("timestamp", "")) >= began_at:
            causes = [f"{each['exc_type']}: {each['exc_value']}" for each in record.get("error_detail") or []]
            first_lines = [text.partition("\n")[0] for text in [record["event"], *causes]]
            yield f"{task} {file.stem}: {' | '.join(first_lines)[:600]}"


def _of_a_service(file, began_at):
    """The last line of each traceback, which is the exception, with the event above it."""
    event, found = "", []
    for line in file.read_text(errors="replace").splitlines():
        if at := _at(line.split(" ", 1)[0]):
            event = line if at >= began_at else ""
        elif event and SERVED not in event and EXCEPTION.match(line):
            found.append(f"{event[:160].rstrip()} | {line[:400]}")
    return found


def _at(text):
    try:
        return datetime.fromisoformat(text).replace(tzinfo=UTC).timestamp()
    except ValueError:
        return 0.0
