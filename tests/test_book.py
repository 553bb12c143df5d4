"""The book's frame: the lint holds, and every fault that must not be published is caught when planted."""

from __future__ import annotations

import copy
import sys
from pathlib import Path

import nbformat
import pytest

ROOT = Path(__file__).parents[1]
sys.path.insert(0, str(ROOT / "tools"))
import book  # noqa: E402

CHAPTERS = sorted((ROOT / "notebooks").glob("*.ipynb"))
URL = book.repository()


@pytest.mark.parametrize("path", CHAPTERS, ids=lambda path: path.stem)
def test_chapters_keep_the_frame(path):
    assert book.lint(path, URL, chapter=path.stem[:1].isdigit()) == []


def test_every_chapter_is_in_the_contents():
    assert {f"notebooks/{path.stem}" for path in CHAPTERS} <= set(book.toc_pages())
    for page in book.toc_pages():
        assert list(ROOT.glob(f"{page}.*")), page


@pytest.fixture
def chapter() -> nbformat.NotebookNode:
    return nbformat.read(CHAPTERS[0], as_version=4)


def faults_of(chapter, tmp_path, name=CHAPTERS[0].name) -> str:
    path = tmp_path / name
    nbformat.write(chapter, path)
    return "\n".join(book.lint(path, URL))


def first_with(chapter, condition):
    return next(cell for cell in chapter.cells if cell.cell_type == "code" and condition(cell))


def test_lint_catches_a_missing_parameters_cell(chapter, tmp_path):
    first_with(chapter, lambda c: "parameters" in book.tags(c)).metadata.pop("tags")
    assert "0 cells tagged 'parameters'" in faults_of(chapter, tmp_path)


def test_lint_catches_missing_alt_text(chapter, tmp_path):
    first_with(chapter, book.has_picture).metadata.pop("mystnb")
    assert "picture without alt text" in faults_of(chapter, tmp_path)


def test_lint_catches_outputs_that_nbval_would_not_compare(chapter, tmp_path):
    stripped = copy.deepcopy(chapter)
    for cell in stripped.cells:
        if cell.cell_type == "code":
            cell.outputs = []
    assert "fewer than three outputs that nbval compares" in faults_of(stripped, tmp_path)
    for cell in chapter.cells:
        if cell.cell_type == "code":
            cell.metadata["tags"] = [*book.tags(cell), "nbval-ignore-output"]
    assert "fewer than three outputs that nbval compares" in faults_of(chapter, tmp_path)


def test_lint_catches_a_badge_or_setup_cell_of_another_repository(chapter, tmp_path):
    text = nbformat.writes(chapter).replace(URL, "https://github.com/somebody/else")
    assert "not the setup cell for" in faults_of(nbformat.reads(text, as_version=4), tmp_path)
    assert "lacks the Colab button" in faults_of(chapter, tmp_path, name="09-renamed.ipynb")


def test_lint_catches_the_rest_of_the_frame(chapter, tmp_path):
    cell = first_with(chapter, lambda c: c.outputs)
    cell.outputs.append(nbformat.v4.new_output("stream", name="stderr", text="UserWarning: beware"))
    cell.outputs.append(nbformat.v4.new_output("stream", name="stdout", text="/home/me/data"))
    first_with(chapter, lambda c: c.execution_count == 3).execution_count = None
    chapter.metadata["kernelspec"]["name"] = "my-env"
    chapter.metadata["widgets"] = {}
    chapter.cells = [c for c in chapter.cells if "## Limits" not in c.source]
    faults = faults_of(chapter, tmp_path)
    for fault in (
        "prints to stderr", "somebody's machine", "never executed", "kernel is not", "widget state", "lacks the section 'Limits'"
    ):  # fmt: skip
        assert fault in faults, fault


def test_changing_the_repository_keeps_everything_in_step(tmp_path):
    import shutil

    for name in ("_config.yml", "README.md", "CITATION.cff"):
        shutil.copy(ROOT / name, tmp_path)
    shutil.copytree(
        ROOT / "notebooks", tmp_path / "notebooks", ignore=shutil.ignore_patterns(".ipynb_checkpoints")
    )
    book.set_repository("https://github.com/me/my-course", tmp_path)
    url = book.repository(tmp_path)
    assert url == "https://github.com/me/my-course"
    for path in sorted((tmp_path / "notebooks").glob("*.ipynb")):
        assert book.lint(path, url, chapter=path.stem[:1].isdigit()) == []
    for path in tmp_path.rglob("*"):
        if path.suffix in (".md", ".yml", ".cff", ".ipynb"):
            assert URL not in path.read_text(), path
    with pytest.raises(book.BookError, match="not of the form"):
        book.set_repository("git@github.com:me/x", tmp_path)


# executing


def tiny(path: Path, *cells: str, parameters: str | None = "N = 1") -> Path:
    """A notebook of a title, a parameters cell and some code cells."""
    notebook = nbformat.v4.new_notebook()
    notebook.cells = [nbformat.v4.new_markdown_cell("# Tiny")]
    if parameters is not None:
        notebook.cells.append(nbformat.v4.new_code_cell(parameters, metadata={"tags": ["parameters"]}))
    notebook.cells += [nbformat.v4.new_code_cell(source) for source in cells]
    notebook.metadata = {"kernelspec": {"name": "python3", "display_name": "Python 3", "language": "python"}}
    path.parent.mkdir(parents=True, exist_ok=True)
    nbformat.write(notebook, path)
    return path


def test_execution_reports_time_and_memory_and_takes_parameters(tmp_path):
    path = tiny(tmp_path / "tiny.ipynb", "print(N + 1)")
    row = book.execute(path, tmp_path / "out" / "tiny.ipynb", {"N": 41})
    assert row["chapter"] == "tiny"
    assert row["seconds"] > 0
    assert row["megabytes"] > 10
    assert "42" in (tmp_path / "out" / "tiny.ipynb").read_text()


def test_execution_ends_at_a_broken_cell(tmp_path):
    path = tiny(tmp_path / "tiny.ipynb", "1 / 0")
    with pytest.raises(book.BookError, match=r"(?s)tiny.ipynb failed.*ZeroDivisionError"):
        book.execute(path, tmp_path / "out.ipynb")


def test_execution_refuses_unknown_parameters_and_missing_cells(tmp_path):
    with pytest.raises(book.BookError, match=r"no parameter \['M'\]; it has \['N'\]"):
        book.execute(tiny(tmp_path / "a.ipynb"), tmp_path / "out.ipynb", {"M": 2})
    with pytest.raises(book.BookError, match="no cell tagged 'parameters'"):
        book.execute(tiny(tmp_path / "b.ipynb", parameters=None), tmp_path / "out.ipynb")


def test_status_table_marks_what_is_over_its_limit():
    rows = [
        {"chapter": "quick", "seconds": 10, "megabytes": 500},
        {"chapter": "slow", "seconds": 61, "megabytes": 500},
    ]
    quick, slow, total = book.status_table(rows).splitlines()[2:]
    assert quick.endswith("| yes |")
    assert slow.endswith("| NO |")
    assert total.endswith("| yes |")


# building


@pytest.fixture
def site(tmp_path) -> Path:
    (tmp_path / "_config.yml").write_text(
        "title: Tiny\nexecute: {execute_notebooks: 'off'}\nsphinx: {config: {html_math_renderer: mathjax}}\n"
    )
    (tmp_path / "_toc.yml").write_text("format: jb-book\nroot: index\nchapters: [{file: page}]\n")
    (tmp_path / "index.md").write_text("# Tiny\n\nA book.\n")
    (tmp_path / "page.md").write_text("# Page\n\nText.\n")
    return tmp_path


def test_a_clean_site_builds_and_a_warning_ends_it(site):
    book.sphinx(site)
    assert book.toc_pages(site) == ["index", "page"]
    assert not [
        p for p in book.check_pages(site / "_build" / "html", ["index", "page"]) if "network" not in p
    ]
    (site / "page.md").write_text("# Page\n\n[nowhere](missing.md)\n")
    with pytest.raises(book.BookError, match="missing.md"):
        book.sphinx(site)


def test_a_page_missing_from_disk_ends_the_build(site):
    (site / "page.md").unlink()
    with pytest.raises(book.BookError, match="page"):
        book.sphinx(site)


def test_pages_are_checked_for_presence_alt_text_and_network(tmp_path):
    (tmp_path / "good.html").write_text(
        '<img src="a.png" alt="A dog to the left of a cup."><script src="_static/x.js"></script>'
    )
    (tmp_path / "bad.html").write_text(
        '<img src="a.png" alt="_images/0a1b.png"><script src="https://cdn.example/x.js"></script>'
    )
    assert book.check_pages(tmp_path, ["good"]) == []
    missing, alt, network = book.check_pages(tmp_path, ["gone", "bad"])
    assert "gone: the page is missing" in missing
    assert "without alt text" in alt
    assert "needs the network for https://cdn.example/x.js" in network
