"""nbval, with the book's own comparison, on the chapters as papermill executed them.

nbval executes a notebook in a kernel and compares what it prints with what was committed. Here the kernel is replaced
by the chapter's last execution, which `make book` or this run has made of the same sources
(``book.executed``), so that no chapter is executed twice; and outputs are compared as ``tools/outputs.py`` does: words
exactly, numbers as numbers.
"""

from __future__ import annotations

import sys
from pathlib import Path

import nbformat

sys.path.insert(0, str(Path(__file__).parents[1] / "tools"))
import book
import outputs
from nbval import plugin


class Execution:
    """A chapter's execution, read out as nbval reads a kernel."""

    def __init__(self, path: Path):
        self.cells = [
            c
            for c in nbformat.read(path, as_version=4).cells
            if c.cell_type == "code"
        ]
        self.next, self.messages = 0, []

    def execute_cell_input(self, source: str, allow_stdin: bool = False) -> str:
        cell, identity = self.cells[self.next], f"cell {self.next}"
        if cell.source != source:
            raise RuntimeError(f"The execution is of another {identity}.")
        self.next += 1
        states = [
            {"msg_type": "status", "content": {"execution_state": "idle"}}
        ]
        told = [
            {"msg_type": output.output_type, "content": output}
            for output in cell.outputs
        ]
        self.messages = [
            {**message, "parent_header": {"msg_id": identity}}
            for message in told + states
        ]
        return identity

    def get_message(
        self, stream: str = "iopub", timeout: float | None = None
    ) -> dict:
        return self.messages.pop(0)

    def is_alive(self) -> bool:
        return True

    def await_reply(self, identity: str, timeout: float | None = None) -> None:
        """The reply is there."""

    await_idle = await_reply

    def stop(self) -> None:
        """Nothing runs."""


def setup(self) -> None:
    self.kernel = Execution(book.executed(Path(self.path)))
    self.setup_sanitize_files()


def compare_outputs(self, test, ref, skip_compare=None) -> bool:
    faults, _ = outputs.compare(ref, test, self.cell.metadata.get("tolerance"))
    self.comparison_traceback = faults
    return not faults


plugin.IPyNbFile.setup = setup
plugin.IPyNbCell.compare_outputs = compare_outputs
