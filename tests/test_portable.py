"""The comparison of a chapter with its execution under another arithmetic: what it counts, and what it refuses."""

from __future__ import annotations

import sys
from pathlib import Path

import nbformat
import pytest
from nbformat.v4 import new_code_cell, new_notebook, new_output

sys.path.insert(0, str(Path(__file__).parents[1] / "tools"))
import portable

import book


def write(path: Path, *texts: str, source: str = "print(x)", **metadata) -> Path:
    cells = [
        new_code_cell(source, outputs=[new_output("stream", name="stdout", text=text)], metadata=metadata)
        for text in texts
    ]
    nbformat.write(new_notebook(cells=cells), path)
    return path


def test_cells_that_moved_are_counted_and_the_largest_move_is_named(tmp_path):
    one = write(tmp_path / "one.ipynb", "0.500 of all", "12.50", "7 things")
    other = write(tmp_path / "other.ipynb", "0.501 of all", "12.50", "7 things")
    result = portable.compare(one, other)
    assert (result.cells, result.moved, result.faults) == (3, 1, ())
    assert result.largest == pytest.approx(1)
    assert result.place.startswith("one, cell 0: 0.500 is now 0.501")


@pytest.mark.parametrize("now", ["0.503 of all", "0.500 of none", "-0.500 of all"])
def test_what_says_something_else_is_a_fault(tmp_path, now):
    result = portable.compare(
        write(tmp_path / "one.ipynb", "0.500 of all"), write(tmp_path / "other.ipynb", now)
    )
    assert len(result.faults) == 1 and result.faults[0].startswith("one, cell 0: ")


def test_cells_that_nbval_leaves_out_are_left_out(tmp_path):
    one, other = (
        write(tmp_path / f"{text}.ipynb", text, tags=["nbval-ignore-output"]) for text in ("3 s", "5 s")
    )
    assert portable.compare(one, other).cells == 0


def test_an_execution_of_other_code_is_refused(tmp_path):
    one = write(tmp_path / "one.ipynb", "1.0")
    with pytest.raises(book.BookError, match="other code than one.ipynb"):
        portable.compare(one, write(tmp_path / "other.ipynb", "1.0", source="print(y)"))


def test_a_failing_chapter_is_named_with_its_setting(tmp_path, monkeypatch):
    monkeypatch.setattr(portable, "FOLDER", tmp_path / "out")
    result = portable.run("sse-1", portable.SETTINGS["sse-1"], write(tmp_path / "bare.ipynb", "1.0"))
    assert "bare failed under sse-1" in result.faults[0]
    assert "no cell tagged 'parameters'" in result.faults[0]


def test_at_least_four_settings_and_each_names_only_arithmetic():
    assert len(portable.SETTINGS) >= 4
    assert {name for setting in portable.SETTINGS.values() for name in setting} <= set(book.ARITHMETIC)


def test_the_table_names_where_the_largest_move_was():
    rows = [
        portable.Result(5, 1, 0.5, "03, cell 2: 0.1 is now 0.2", ()),
        portable.Result(4, 2, 0.25, "", ()),
    ]
    assert "| sse-1 | 9 | 3 | 0.50 | 03, cell 2" in portable.table({"sse-1": rows})
