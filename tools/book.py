"""Execute the chapters, build the pages, and check both: strictly.

    python tools/book.py build                    # what `make book` runs
    python tools/book.py lint                     # the chapters' frame, without executing them
    python tools/book.py refresh 03               # execute chapters in place: their committed outputs
    python tools/book.py tolerances               # cells whose numbers may move further than the default, and why
    python tools/book.py set-repository URL       # badge, setup cell and _config.yml, all at once

A broken cell, an unknown parameter, a chapter without a parameters cell, a Sphinx warning, a page that is
missing, a picture without alt text: each ends the build with an error that names it.
"""

from __future__ import annotations

import argparse
import hashlib
import json
import os
import platform
import re
import shutil
import subprocess
import sys
import time
from html.parser import HTMLParser
from importlib import metadata
from pathlib import Path

import nbformat
import yaml

ROOT = Path(__file__).resolve().parents[1]
SITE = ROOT / "build" / "site"
EXECUTED = ROOT / "build" / "executed"
HTML = SITE / "_build" / "html"
BRANCH = "main"
LIMIT_SECONDS, LIMIT_BOOK_SECONDS, LIMIT_MEGABYTES = 60, 480, 2000
#: Settings of the environment that change how sums of floating-point numbers are rounded.
ARITHMETIC = (
    "ATEN_CPU_CAPABILITY", "ONEDNN_MAX_CPU_ISA", "DNNL_MAX_CPU_ISA", "MKL_CBWR", "OPENBLAS_CORETYPE",
    "OMP_NUM_THREADS", "MKL_NUM_THREADS", "OPENBLAS_NUM_THREADS",
)  # fmt: skip
SECTIONS = ("What you will learn", "Summary", "Limits", "Exercises", "References")

SETUP = '''# In Colab this installs the book's package; anywhere else it does nothing.
import sys

if "google.colab" in sys.modules:
    %pip install -q "readout-utils @ git+{url}@{branch}"'''


class BookError(Exception):
    """Something in the book that must not be published."""


# --- the chapters' frame -------------------------------------------------------------------------


def repository(root: Path = ROOT) -> str:
    """The one place where the repository's address is set: ``_config.yml``."""
    return yaml.safe_load((root / "_config.yml").read_text())["repository"]["url"]


def badge(url: str, name: str) -> str:
    """Markdown of a chapter's Colab button."""
    owner_and_name = url.removeprefix("https://github.com/")
    target = f"https://colab.research.google.com/github/{owner_and_name}/blob/{BRANCH}/notebooks/{name}"
    return f"[![Open in Colab](https://colab.research.google.com/assets/colab-badge.svg)]({target})"


def tags(cell) -> set[str]:
    return set(cell.metadata.get("tags", []))


def has_picture(cell) -> bool:
    return any("image/png" in output.get("data", {}) for output in cell.get("outputs", []))


def compared(cell) -> bool:
    """Whether nbval compares something a reader sees in this cell's output."""
    if tags(cell) & {"nbval-ignore-output", "nbval-skip", "raises-exception"}:
        return False
    for output in cell.get("outputs", []):
        if output.output_type == "stream" and output.name == "stdout" and output.text.strip():
            return True
        if set(output.get("data", {})) & {"text/markdown", "text/html"}:
            return True
        if "text/plain" in output.get("data", {}) and "image/png" not in output.data:
            return True
    return False


def lint(path: Path, url: str, chapter: bool = True) -> list[str]:
    """What is wrong with a chapter's frame, in words; an empty list if nothing is."""
    notebook = nbformat.read(path, as_version=4)
    code = [cell for cell in notebook.cells if cell.cell_type == "code"]
    prose = "\n".join(cell.source for cell in notebook.cells if cell.cell_type == "markdown")
    problems = []

    def expect(condition, problem):
        if not condition:
            problems.append(f"{path.name}: {problem}")

    expect(notebook.metadata.get("kernelspec", {}).get("name") == "python3", "the kernel is not 'python3'")
    expect("widgets" not in notebook.metadata, "holds widget state, which a page would load from a network")
    first = notebook.cells[0].source if notebook.cells else ""
    expect(first.startswith("# "), "does not open with a title")
    expect(badge(url, path.name) in first, f"the first cell lacks the Colab button for {url}")
    expect(
        code and code[0].source == SETUP.format(url=url, branch=BRANCH),
        f"the first code cell is not the setup cell for {url}",
    )
    parameters = [cell for cell in code if "parameters" in tags(cell)]
    expect(len(parameters) == 1, f"has {len(parameters)} cells tagged 'parameters', not one")
    if chapter:
        for section in SECTIONS:
            expect(re.search(rf"^## {section}", prose, re.M), f"lacks the section '{section}'")
        expect(re.search(r"\d+ minutes", first), "the opening does not say how long it takes")
        expect(prose.count(":::{exercise}") >= 2, "has fewer than two exercises")
        expect(
            prose.count(":::{exercise}") == prose.count("{solution-start}"),
            "exercises and solutions differ in number",
        )
    expect(sum(map(compared, code)) >= 3, "commits fewer than three outputs that nbval compares")
    for number, cell in enumerate(code):
        where = f"code cell {number} ({cell.source.strip().splitlines()[0][:50] if cell.source.strip() else 'empty'})"
        if cell.source.strip() and number:
            expect(cell.execution_count is not None, f"{where} was never executed")
        asked = cell.metadata.get("tolerance", {})
        expect(not asked or len(asked.get("why", "")) >= 20, f"{where} has a tolerance and does not say why")
        unknown = set(asked) - {"items", "absolute", "relative", "percent", "why"}
        expect(not unknown, f"{where} has an unknown kind of tolerance: {sorted(unknown)}")
        for output in cell.get("outputs", []):
            expect(output.output_type != "error", f"{where} ends in an error")
            stderr = output.output_type == "stream" and output.name == "stderr"
            expect(not stderr, f"{where} prints to stderr: {output.get('text', '')[:80]!r}")
        alt = cell.metadata.get("mystnb", {}).get("image", {}).get("alt", "")
        expect(not has_picture(cell) or len(alt) >= 30, f"{where} shows a picture without alt text")
        if re.search(r"/(home|root|work|tmp|Users)/", str(cell.get("outputs", "")) + cell.source):
            expect(False, f"{where} holds a path of somebody's machine")
    return problems


def tolerances(paths: list[Path]) -> list[str]:
    """Cells whose numbers may move further than the book's default, one line each: chapter, cell, tolerance, why."""
    lines = []
    for path in paths:
        code = [c for c in nbformat.read(path, as_version=4).cells if c.cell_type == "code"]
        for number, cell in enumerate(code):
            if asked := cell.metadata.get("tolerance"):
                how = ", ".join(f"{key} {value}" for key, value in asked.items() if key != "why")
                lines.append(f"{path.stem}, cell {number}: {how}: {asked.get('why', 'NO REASON GIVEN')}")
    return lines


def set_repository(url: str, root: Path = ROOT) -> None:
    """Write another repository address into ``_config.yml`` and every notebook."""
    url = url.rstrip("/")
    if not re.fullmatch(r"https://github\.com/[\w.-]+/[\w.-]+", url):
        raise BookError(f"{url!r} is not of the form https://github.com/<owner>/<name>.")
    old = repository(root)
    short = [address.removeprefix("https://github.com/") for address in (old, url)]
    for path in [
        root / "_config.yml",
        root / "README.md",
        root / "CITATION.cff",
        *sorted((root / "book").glob("*.md")),
        *sorted((root / "notebooks").glob("*.ipynb")),
    ]:
        text = path.read_text()
        path.write_text(text.replace(old, url).replace(f"/github/{short[0]}/", f"/github/{short[1]}/"))


# --- executing -----------------------------------------------------------------------------------


def check_parameters(path: Path, parameters: dict) -> None:
    """Refuse what papermill only warns of: no parameters cell, or a parameter it does not have."""
    from papermill import inspect_notebook

    notebook = nbformat.read(path, as_version=4)
    if not any("parameters" in tags(cell) for cell in notebook.cells):
        raise BookError(f"{path.name} has no cell tagged 'parameters'.")
    known = inspect_notebook(str(path))
    unknown = set(parameters) - set(known)
    if unknown:
        raise BookError(f"{path.name} has no parameter {sorted(unknown)}; it has {sorted(known)}.")


def execute(path: Path, out: Path, parameters: dict | None = None, cwd: Path | None = None) -> dict:
    """Execute one notebook with papermill in a process of its own.

    Returns
    -------
    dict : chapter, seconds, megabytes (peak memory of the kernel).

    Raises
    ------
    BookError : a failing cell, an unknown parameter, no parameters cell.
    """
    parameters = parameters or {}
    check_parameters(path, parameters)
    out.parent.mkdir(parents=True, exist_ok=True)
    cwd = cwd or out.parent
    runner = (
        "import sys, json, resource, papermill as pm;"
        "pm.execute_notebook(sys.argv[1], sys.argv[2], parameters=json.loads(sys.argv[3]), kernel_name='python3',"
        " execution_timeout=600, progress_bar=False, cwd=sys.argv[4], log_output=False);"
        "print(resource.getrusage(resource.RUSAGE_CHILDREN).ru_maxrss)"
    )
    began = time.time()
    done = subprocess.run(
        [sys.executable, "-c", runner, str(path), str(out), json.dumps(parameters), str(cwd)],
        capture_output=True,
        text=True,
    )
    if done.returncode:
        raise BookError(f"{path.name} failed:\n{done.stderr[-3000:]}")
    unit = 1024 if sys.platform != "darwin" else 1024**2
    return {
        "chapter": path.stem,
        "seconds": time.time() - began,
        "megabytes": int(done.stdout.split()[-1]) / unit,
    }


def execution_key(path: Path, root: Path = ROOT) -> str:
    """A hash of what a chapter's execution depends on: its code, the package and its data, versions, arithmetic."""
    digest = hashlib.sha256()
    notebook = nbformat.read(path, as_version=4)
    for cell in notebook.cells:
        if cell.cell_type == "code":
            digest.update(json.dumps([cell.source, sorted(tags(cell))]).encode())
    for source in sources(root / "readout_utils"):
        digest.update(str(source.relative_to(root)).encode() + source.read_bytes())
    versions = sorted(f"{d.metadata['Name']} {d.version}" for d in metadata.distributions())
    arithmetic = {name: os.environ.get(name) for name in ARITHMETIC}
    digest.update(json.dumps([versions, sys.version, platform.machine(), arithmetic]).encode())
    return digest.hexdigest()


def sources(folder: Path) -> list[Path]:
    """Files of a folder that are no caches, sorted."""
    return [
        path
        for path in sorted(folder.rglob("*"))
        if path.is_file() and not {"__pycache__", ".ipynb_checkpoints"} & set(path.parts)
    ]


def executed(path: Path) -> Path:
    """A chapter as papermill executes it: the last execution if nothing it depends on has changed since, or a new one.

    Raises
    ------
    BookError : as :func:`execute`.
    """
    return EXECUTED / execution(path)["file"]


def execution(path: Path) -> dict:
    """The record of :func:`executed`: chapter, seconds, megabytes, key, file."""
    key, record = execution_key(path), EXECUTED / f"{path.stem}.json"
    if record.is_file() and (row := json.loads(record.read_text()))["key"] == key:
        return row
    record.unlink(missing_ok=True)
    row = {**execute(path, EXECUTED / path.name), "key": key, "file": path.name}
    record.write_text(json.dumps(row))
    print(f"{row['chapter']:40s} {row['seconds']:6.1f} s {row['megabytes']:7.0f} MB", flush=True)
    return row


def status_table(rows: list[dict]) -> str:
    """The build's table of times and memory, as Markdown."""
    lines = ["| chapter | seconds | peak memory (MB) | within limits |", "|---|---:|---:|---|"]
    for row in rows:
        fine = row["seconds"] <= LIMIT_SECONDS and row["megabytes"] <= LIMIT_MEGABYTES
        lines.append(
            f"| {row['chapter']} | {row['seconds']:.0f} | {row['megabytes']:.0f} | {'yes' if fine else 'NO'} |"
        )
    total = sum(row["seconds"] for row in rows)
    fine = "yes" if total <= LIMIT_BOOK_SECONDS else "NO"
    lines.append(f"| all | {total:.0f} | {max(row['megabytes'] for row in rows):.0f} | {fine} |")
    return "\n".join(lines)


# --- building and checking pages ------------------------------------------------------------------


def toc_pages(root: Path = ROOT) -> list[str]:
    """Every page of ``_toc.yml``, without suffix."""

    def walk(node):
        if isinstance(node, dict):
            for key, value in node.items():
                if key in ("root", "file"):
                    yield value
                else:
                    yield from walk(value)
        elif isinstance(node, list):
            for value in node:
                yield from walk(value)

    return list(walk(yaml.safe_load((root / "_toc.yml").read_text())))


def sphinx(site: Path) -> None:
    """Build the pages; any warning is an error."""
    done = subprocess.run(
        [
            str(Path(sys.executable).parent / "jupyter-book"),
            "build",
            str(site),
            "--all",
            "-W",
            "-n",
            "--keep-going",
        ],
        capture_output=True,
        text=True,
    )
    if done.returncode:
        log = [
            line
            for line in done.stderr.splitlines()
            if "WARNING" in line or "ERROR" in line or "rror:" in line
        ]
        raise BookError(
            "The pages do not build cleanly:\n" + "\n".join(log or done.stderr.splitlines()[-20:])
        )


class _Page(HTMLParser):
    def __init__(self):
        super().__init__()
        self.pictures: list[dict] = []
        self.addresses: list[str] = []

    def handle_starttag(self, tag, attributes):
        attributes = dict(attributes)
        if tag == "img":
            self.pictures.append(attributes)
        if tag in ("script", "link", "img", "iframe"):
            rel = attributes.get("rel") or ""
            if "preconnect" not in rel and "canonical" not in rel:
                self.addresses += [
                    attributes.get(key) or "" for key in ("src", "href") if attributes.get(key)
                ]


def check_pages(html: Path, pages: list[str]) -> list[str]:
    """What is wrong with built pages: missing ones, pictures without alt text, files from a network."""
    problems = []
    for page in pages:
        path = html / f"{page}.html"
        if not path.is_file():
            problems.append(f"{page}: the page is missing")
            continue
        parsed = _Page()
        parsed.feed(path.read_text())
        for picture in parsed.pictures:
            alt, source = picture.get("alt") or "", picture.get("src") or ""
            if not alt.strip() or alt.endswith((".png", ".svg", ".jpg")):
                problems.append(f"{page}: a picture without alt text ({source[:60]})")
        for address in parsed.addresses:
            if address.startswith(("http:", "https:", "//")) and "colab-badge" not in address:
                problems.append(f"{page}: needs the network for {address}")
    return problems


def fingerprint(root: Path = ROOT) -> str:
    """A hash of everything the pages are made of."""
    digest = hashlib.sha256()
    for folder in ("book", "notebooks", "readout_utils", "tools"):
        for path in sources(root / folder):
            digest.update(str(path.relative_to(root)).encode() + path.read_bytes())
    for name in ("_config.yml", "_toc.yml"):
        digest.update((root / name).read_bytes())
    return digest.hexdigest()


def is_built(root: Path = ROOT) -> bool:
    """Whether the pages under build/ are those of the present sources."""
    stamp = root / "build" / "site" / "fingerprint"
    return stamp.is_file() and stamp.read_text() == fingerprint(root)


def place(executed: Path, committed: Path, folder: Path) -> None:
    """Put an executed chapter where its page is made of it: with the prose, and the metadata, as they are now."""
    notebook, done = (nbformat.read(path, as_version=4) for path in (committed, executed))
    outputs = iter([cell for cell in done.cells if cell.cell_type == "code"])
    for cell in notebook.cells:
        if cell.cell_type == "code":
            ran = next(outputs)
            cell.outputs, cell.execution_count = ran.outputs, ran.execution_count
    folder.mkdir(parents=True, exist_ok=True)
    nbformat.write(notebook, folder / committed.name)


def build(root: Path = ROOT) -> list[dict]:
    """Lint, execute every chapter, build the pages, check them. Returns the execution table's rows."""
    site = root / "build" / "site"
    chapters = sorted((root / "notebooks").glob("*.ipynb"))
    url = repository(root)
    problems = [p for path in chapters for p in lint(path, url, chapter=path.stem[:1].isdigit())]
    if problems:
        raise BookError("\n".join(problems))
    shutil.rmtree(site, ignore_errors=True)
    site.mkdir(parents=True)
    for name in ("_config.yml", "_toc.yml"):
        shutil.copy(root / name, site)
    shutil.copytree(root / "book", site / "book")
    rows = [execution(path) for path in chapters]
    for row in rows:
        place(EXECUTED / row["file"], root / "notebooks" / row["file"], site / "notebooks")
    status = site / "book" / "status.md"
    if status.is_file():
        status.write_text(status.read_text().replace("<!-- execution table -->", status_table(rows)))
    sphinx(site)
    problems = check_pages(site / "_build" / "html", toc_pages(root))
    if problems:
        raise BookError("\n".join(problems))
    (site / "fingerprint").write_text(fingerprint(root))
    print("\n" + status_table(rows) + f"\n\nThe book is at {site / '_build' / 'html' / 'index.html'}")
    return rows


def refresh(which: list[str], root: Path = ROOT) -> None:
    """Execute chapters in place, so that their committed outputs are what the code prints now."""
    for path in sorted((root / "notebooks").glob("*.ipynb")):
        if which and not any(path.name.startswith(prefix) for prefix in which):
            continue
        out = root / "build" / "refresh" / path.name
        row = execute(path, out)
        notebook = nbformat.read(out, as_version=4)
        notebook.metadata = {
            "kernelspec": {"display_name": "Python 3", "language": "python", "name": "python3"},
            "language_info": {"name": "python"},
        }
        for cell in notebook.cells:
            cell.metadata = {
                key: cell.metadata[key] for key in ("tags", "mystnb", "tolerance") if cell.metadata.get(key)
            }
        nbformat.write(notebook, path)
        print(f"{row['chapter']:40s} {row['seconds']:6.1f} s {row['megabytes']:7.0f} MB", flush=True)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    commands = parser.add_subparsers(dest="command", required=True)
    commands.add_parser("build", help="execute, build, check")
    commands.add_parser("lint", help="check the chapters' frame")
    commands.add_parser("tolerances", help="cells with a tolerance of their own")
    commands.add_parser("refresh", help="execute in place").add_argument("which", nargs="*")
    commands.add_parser("set-repository", help="change the address everywhere").add_argument("url")
    arguments = parser.parse_args()
    try:
        if arguments.command == "build":
            build()
        elif arguments.command == "refresh":
            refresh(arguments.which)
        elif arguments.command == "set-repository":
            set_repository(arguments.url)
        elif arguments.command == "tolerances":
            print("\n".join(tolerances(sorted((ROOT / "notebooks").glob("*.ipynb")))))
        else:
            problems = [
                p
                for path in sorted((ROOT / "notebooks").glob("*.ipynb"))
                for p in lint(path, repository(), chapter=path.stem[:1].isdigit())
            ]
            if problems:
                raise BookError("\n".join(problems))
    except BookError as error:
        sys.exit(f"error: {error}")


if __name__ == "__main__":
    main()
