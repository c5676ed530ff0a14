"""Run the session of a document again, so that what it shows is what happens.

    python scripts/replay.py docs/ci.md            # say whether it still holds
    python scripts/replay.py docs/ci.md --write    # put in what is printed now

Understood: ```python title="FILE"``` writes a file, ```diff title="FILE"``` changes lines of
one, and in ```console``` every line after `$ ` is run, what follows being its output.
`xla-cost`, `pytest`, `cat` and `echo $?` are known; pytest's seconds are left out.
"""

from __future__ import annotations

import argparse
import contextlib
import io
import os
import re
import shlex
import subprocess
import sys
import tempfile
from pathlib import Path

_BLOCK = re.compile(
    r'^```(?P<kind>\w+)(?: title="(?P<title>[^"]+)")?\n(?P<body>.*?)^```$', re.MULTILINE | re.DOTALL
)


class Session:
    """The folder the document's files are written to, and the exit code of the last command."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.code = 0

    def replay(self, text: str) -> str:
        """Return the document with the output of every command as it is now."""
        return _BLOCK.sub(self._block, text)

    def _block(self, block: re.Match[str]) -> str:
        kind, title, body = block["kind"], block["title"], block["body"]
        if kind == "python" and title:
            (self.folder / title).write_text(body)
        elif kind == "diff" and title:
            self._change(self.folder / title, body)
        elif kind == "console":
            commands = [line[2:] for line in body.splitlines() if line.startswith("$ ")]
            shown = [f"$ {command}\n{self._run(command)}" for command in commands]
            return f"```console\n{''.join(shown)}```"
        return block[0]

    def _change(self, path: Path, diff: str) -> None:
        lines = diff.splitlines(keepends=True)
        before = "".join(line[1:] for line in lines if line[0] in "- ")
        after = "".join(line[1:] for line in lines if line[0] in "+ ")
        text = path.read_text()
        if text.count(before) != 1:
            raise SystemExit(f"{path.name}: holds {before!r} {text.count(before)} times, not once")
        path.write_text(text.replace(before, after))

    def _run(self, command: str) -> str:
        words = shlex.split(command)
        if words[0] == "echo":
            return f"{self.code}\n"
        if words[0] == "cat":
            return (self.folder / words[1]).read_text()
        if words[0] == "xla-cost":
            return self._in_process(words[1:])
        if words[0] != "pytest":
            raise SystemExit(f"command {command!r}: expected xla-cost, pytest, cat or echo")
        done = subprocess.run(
            [sys.executable, "-m", *words, "-p", "no:cacheprovider"],
            cwd=self.folder, env=_plain_environment(), capture_output=True, text=True,
            check=False,
        )  # fmt: skip
        self.code = done.returncode
        return re.sub(r" in \d+\.\d+s.*", "", done.stdout)

    def _in_process(self, arguments: list[str]) -> str:
        """Run `xla-cost` here: a process of its own would import jax for every line."""
        from xla_cost.cli.app import run

        printed = io.StringIO()
        with contextlib.chdir(self.folder), contextlib.redirect_stdout(printed):
            self.code = run(arguments)
        return printed.getvalue()


def _plain_environment() -> dict[str, str]:
    """This one at a fixed width and not as CI, where pytest does not shorten its summary."""
    kept = {name: value for name, value in os.environ.items() if name not in ("CI", "BUILD_NUMBER")}
    return kept | {"COLUMNS": "88"}


def main(arguments: list[str] | None = None) -> int:
    """Compare or rewrite one document; 1 when it does not hold."""
    parser = argparse.ArgumentParser(description=__doc__.split("\n", 1)[0] if __doc__ else "")
    parser.add_argument("document", type=Path)
    parser.add_argument("--write", action="store_true")
    chosen = parser.parse_args(arguments)
    text = chosen.document.read_text()
    with tempfile.TemporaryDirectory() as folder:
        now = Session(Path(folder).resolve()).replay(text)
    if chosen.write:
        chosen.document.write_text(now)
    elif now != text:
        print(f"{chosen.document}: prints something else now; see --write", file=sys.stderr)
        return 1
    return 0


if __name__ == "__main__":
    sys.exit(main())
