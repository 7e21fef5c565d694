"""What a person types and sees, as text that a page of docs/ can quote."""

import re
import subprocess

from tests.support.paths import REPOSITORY

COMMAND_S = 1500
FOLDER = REPOSITORY / ".slipway" / "transcripts"
SECRET = re.compile(r"(?<=sk-)\S+|(?<=\?X-Amz-)\S+")
"""Keys, and the signature of a link."""
PORT = re.compile(r"127(\.\d+){3}:\d+")
written = []
"""The files of this session."""


class Transcript:
    """Writes to a file as it goes, so that a test that fails shows how far it came. Keys are left out."""

    def __init__(self, name, replaced):
        FOLDER.mkdir(parents=True, exist_ok=True)
        self.file = FOLDER / f"{name}.txt"
        self._replaced = {str(path): text for path, text in replaced.items()}
        self.file.write_text("")
        written.append(self.file)

    def title(self, text):
        """Note what begins here."""
        self._write(f"\n# {text}\n")

    def note(self, command, text):
        """Note what was typed, or done, and what was seen."""
        self._write(f"$ {command}\n{text.strip()}\n")

    def run(self, command, *, shown, code, **options):
        """Run a command as a person would, and note it and what it printed; its stdout."""
        self._write(f"$ {shown}\n")
        done = subprocess.run(command, capture_output=True, text=True, timeout=COMMAND_S, check=False, **options)
        self._write(
            f"{(done.stderr + done.stdout).strip()}\n" + (f"(exit code {done.returncode})\n" if done.returncode else "")
        )
        assert done.returncode == code
        return done.stdout.strip()

    def _write(self, text):
        for path, instead in self._replaced.items():
            text = text.replace(path, instead)
        with self.file.open("a") as stream:
            stream.write(PORT.sub("127.0.0.1:PORT", SECRET.sub("...", text)))
