"""The comparison of chapters' outputs: what another processor changes passes, what an author or a bug changes fails."""

from __future__ import annotations

import copy
import json
import re
import sys
from pathlib import Path

import nbformat
import numpy as np
import pytest

ROOT = Path(__file__).parents[1]
sys.path.insert(0, str(ROOT / "tools"))
import outputs  # noqa: E402

CHAPTERS = sorted((ROOT / "notebooks").glob("*.ipynb"))


def text(*lines: str) -> list[dict]:
    return [{"output_type": "stream", "name": "stdout", "text": "\n".join(lines)}]


def html(content: str) -> list[dict]:
    return [{"output_type": "execute_result", "data": {"text/html": content, "text/plain": "whatever"}}]


def faults(committed, now, **asked) -> list[str]:
    return outputs.compare(committed, now, asked)[0]


@pytest.mark.parametrize(
    ("committed", "now"),
    [
        ("accuracy 51 %", "accuracy 50 %"),  # one item of a hundred, or a rounding the other way
        ("rank 107.63", "rank 107.64"),
        ("0.50 [0.42, 0.62]", "0.51 [0.43, 0.61]"),  # a share of the interval beside the unit
        ("r = -0.004", "r = \u22120.005"),  # the typographer's minus
        ("0.0", "-0.0"),
        ("1.2e-05", "1.3e-05"),
        ("a  dog\nand", "a dog and"),  # white space
    ],
)
def test_what_another_processor_prints_passes(committed, now):
    assert faults(text(committed), text(now)) == []


@pytest.mark.parametrize(
    ("committed", "now"),
    [
        ("accuracy 51 %", "accuracy 49 %"),
        ("rank 107.63", "rank 107.65"),
        ("0.50 [0.48, 0.52]", "0.52 [0.50, 0.54]"),
        ("gain +0.12", "gain -0.12"),
        ("400 items", "401 items"),  # counts are exact
        ("ViT-B-16", "ViT-B-32"),
        ("torch 2.6.0", "torch 2.6.1"),
        ("to the left of", "to the right of"),
        ("one 0.5 two 0.7", "two 0.7 one 0.5"),
        ("51 %", "51"),
    ],
)
def test_what_says_something_else_fails(committed, now):
    assert faults(text(committed), text(now)) != []


def test_a_cell_may_ask_for_more_and_says_how_much():
    assert faults(text("0.512"), text("0.516")) != []
    assert faults(text("0.512"), text("0.516"), items=400) == []  # 0.001 + 2 / 400
    assert faults(text("0.512"), text("0.519"), items=400) != []
    assert faults(text("51.2 %"), text("51.7 %"), items=400) == []  # 0.1 + 200 / 400
    assert faults(text("51.2"), text("51.7"), items=400, percent=True) == []
    assert faults(text("31 of 400"), text("33 of 400"), absolute=2) == []
    assert faults(text("31 of 400"), text("34 of 400"), absolute=2) != []
    assert faults(text("250.0"), text("252.0"), relative=0.01) == []


def test_tables_are_compared_in_order_and_by_structure():
    rows = "<tr><td>dense</td><td>0.91</td></tr>", "<tr><td>excess</td><td>0.92</td></tr>"
    table = html(f"<table>{rows[0]}{rows[1]}</table>")
    assert faults(table, html(f"<table>{rows[0].replace('0.91', '0.90')}{rows[1]}</table>")) == []
    assert faults(table, html(f"<table>{rows[1]}{rows[0]}</table>")) != []
    assert faults(table, html(f"<table>{rows[0]}</table>")) != []
    assert faults(table, html(f"<table>{rows[0].replace('td', 'th')}{rows[1]}</table>")) != []


def test_pictures_are_left_out_by_structure():
    picture = '<img id="x" alt="a dog" src="data:image/png;base64,{}"><script>f(["data:image/png;base64,{}"])</script>'
    one, other = picture.format("iVBO/w+=", "AAAA"), picture.format("iVBORw0K", "BBBB")
    assert faults(html(one), html(other)) == []
    assert faults(html(one), html(other.replace("a dog", "a cup"))) != []
    assert faults(html(one), html(one.replace('id="x"', 'id="y"'))) != []
    shown = [{"output_type": "display_data", "data": {"image/png": "iVBO", "text/plain": "<Figure>"}}]
    assert faults(shown, [{**shown[0], "data": {"image/png": "AAAA", "text/plain": "<Figure>"}}]) == []
    assert "other outputs" in faults(shown, [])[0]


def test_streams_that_come_in_pieces_are_one():
    pieces = [{"output_type": "stream", "name": "stdout", "text": part} for part in ("one 0.", "5\n", "two")]
    assert faults(text("one 0.5", "two"), pieces) == []
    pieces.insert(1, {"output_type": "stream", "name": "stderr", "text": "beware"})
    assert faults(text("one 0.5", "two"), pieces) != []


# --- every committed output, changed ------------------------------------------------------------------


def compared_cells():
    for path in CHAPTERS:
        for cell in nbformat.read(path, as_version=4).cells:
            if (
                cell.cell_type == "code"
                and cell.outputs
                and "nbval-ignore-output" not in cell.metadata.get("tags", [])
            ):
                yield path.stem, cell


def with_text(cell, change) -> list:
    """The cell's outputs with the first output's compared text changed."""
    changed = copy.deepcopy(cell.outputs)
    for output in changed:
        if output.output_type == "stream":
            output.text = change(output.text)
            return changed
        for kind in ("text/html", "text/markdown", "text/plain"):
            if kind in output.data:
                output.data[kind] = change(output.data[kind])
                return changed
    return changed


def visible_numbers(content: str) -> list[re.Match]:
    """Numbers of a text, or of what HTML shows."""
    hidden = [match.span() for match in re.finditer(r"<(style|script).*?</\1>|<[^>]*>", content, re.S)]
    return [
        match
        for match in outputs._NUMBER.finditer(content)
        if not any(a <= match.start() < b for a, b in hidden)
    ]


@pytest.mark.parametrize("chapter", [path.stem for path in CHAPTERS])
def test_a_committed_number_changed_by_twice_its_tolerance_fails(chapter):
    rng, tried = np.random.default_rng(0), 0
    for name, cell in compared_cells():
        if name != chapter:
            continue
        asked = cell.metadata.get("tolerance")
        assert outputs.compare(cell.outputs, json.loads(json.dumps(cell.outputs)), asked) == ([], [])
        contents: list[str] = []
        with_text(cell, lambda content, into=contents: into.append(content) or content)
        found = visible_numbers(contents[0]) if contents else []
        for index in rng.permutation(len(found))[:4]:
            match = found[index]
            number = next(
                t
                for t in outputs.tokens(contents[0][max(0, match.start() - 60) : match.end() + 60])
                if not isinstance(t, str) and t.text == match.group().strip()
            )
            step = (
                2 * max(outputs.tolerance(number, asked), number.unit if not number.whole else 0.5)
                + number.slack
            )
            decimals = max(0, -round(np.log10(number.unit)))
            other = (
                f"{number.value + step:.{decimals}f}" if number.unit >= 1e-4 else f"{number.value + step:.1e}"
            )
            changed = contents[0][: match.start("number")] + other + contents[0][match.end("number") :]
            assert outputs.compare(cell.outputs, with_text(cell, lambda _, c=changed: c), asked)[0], (
                match,
                other,
            )
            tried += 1
    assert tried > 10


@pytest.mark.parametrize("chapter", [path.stem for path in CHAPTERS])
def test_a_committed_word_changed_fails(chapter):
    tried = 0
    for name, cell in compared_cells():
        contents: list[str] = []
        if name == chapter:
            with_text(cell, lambda content, into=contents: into.append(content) or content)
        for content in contents:
            if words := re.findall(r"(?<![\w<])[a-z]{3,}(?![\w>=:-])", content):
                changed = with_text(cell, lambda c, w=words[-1]: c.replace(w, w[::-1] + "x"))
                assert outputs.compare(cell.outputs, changed)[0], words[-1]
                tried += 1
    assert tried > 3
