"""Execute the chapters under several arithmetics on one machine, and compare each with what was committed.

    python tools/portable.py                          # every setting, every chapter: what `make test-portable` runs
    python tools/portable.py --settings sse-1 --chapters 08 09
    python tools/portable.py --torch 2.6.0            # one setting more: an older torch, in an environment of its own

Instruction sets, BLAS kernels and the number of threads change the last bits of every sum of floating-point numbers,
as another processor does. The outputs must say the same: words exactly, numbers within the tolerances of
``tools/outputs.py``. The table says for each setting in how many cells a printed digit moved at all, and how much of
its tolerance the largest move took.
"""

from __future__ import annotations

import argparse
import concurrent.futures
import os
import subprocess
import sys
import time
from dataclasses import dataclass
from pathlib import Path

import nbformat
import outputs

import book

FOLDER = book.ROOT / "build" / "portable"

#: Name to environment. A processor that lacks an instruction set runs the widest it has.
SETTINGS: dict[str, dict[str, str]] = {
    "as it is": {},
    "sse-1": {
        "ATEN_CPU_CAPABILITY": "default",
        "ONEDNN_MAX_CPU_ISA": "SSE41",
        "DNNL_MAX_CPU_ISA": "SSE41",
        "OPENBLAS_CORETYPE": "Nehalem",
        "MKL_CBWR": "COMPATIBLE",
        "OMP_NUM_THREADS": "1",
    },
    "avx2-1": {
        "ATEN_CPU_CAPABILITY": "avx2",
        "ONEDNN_MAX_CPU_ISA": "AVX2",
        "DNNL_MAX_CPU_ISA": "AVX2",
        "OPENBLAS_CORETYPE": "Haswell",
        "MKL_CBWR": "AVX2",
        "OMP_NUM_THREADS": "1",
    },
    "avx-2": {
        "ATEN_CPU_CAPABILITY": "default",
        "ONEDNN_MAX_CPU_ISA": "AVX",
        "DNNL_MAX_CPU_ISA": "AVX",
        "OPENBLAS_CORETYPE": "SandyBridge",
        "MKL_CBWR": "AVX",
        "OMP_NUM_THREADS": "2",
    },
    "avx2-4": {
        "ATEN_CPU_CAPABILITY": "avx2",
        "ONEDNN_MAX_CPU_ISA": "AVX2",
        "DNNL_MAX_CPU_ISA": "AVX2",
        "OPENBLAS_CORETYPE": "Zen",
        "OMP_NUM_THREADS": "4",
    },
}


@dataclass(frozen=True)
class Result:
    """What one chapter's cells did under one setting."""

    cells: int
    moved: int
    largest: float
    place: str
    faults: tuple[str, ...]


def compare(committed: Path, now: Path) -> Result:
    """Compare a chapter with its execution, cell by cell, leaving out what nbval leaves out.

    Raises
    ------
    book.BookError : the execution is of other code.
    """
    pairs = [
        [cell for cell in nbformat.read(path, as_version=4).cells if cell.cell_type == "code"]
        for path in (committed, now)
    ]
    sources = [[cell.source for cell in cells] for cells in pairs]
    if sources[0] != sources[1]:
        raise book.BookError(f"{now} is an execution of other code than {committed.name}.")
    cells = moved = 0
    largest, place, faults = 0.0, "", []
    for number, (old, new) in enumerate(zip(*pairs, strict=True)):
        if book.tags(old) & {"nbval-ignore-output", "nbval-skip", "raises-exception"}:
            continue
        cells += 1
        wrong, moves = outputs.compare(old.outputs, new.outputs, old.metadata.get("tolerance"))
        moved += bool(moves)
        faults += [f"{committed.stem}, cell {number}: {fault}" for fault in wrong]
        for move in moves:
            if move.share > largest:
                largest, place = move.share, f"{committed.stem}, cell {number}: {move}"
    return Result(cells, moved, largest, place, tuple(faults))


def run(setting: str, environment: dict[str, str], path: Path, python: str = sys.executable) -> Result:
    """Execute one chapter under one setting, in processes of its own, and compare."""
    out = FOLDER / setting.replace(" ", "-") / path.name
    clean = {name: value for name, value in os.environ.items() if name not in book.ARITHMETIC}
    done = subprocess.run(
        [
            python,
            "-c",
            "import sys, pathlib, book; book.execute(*map(pathlib.Path, sys.argv[1:]))",
            path,
            out,
        ],
        env={
            **clean,
            **environment,
            "PYTHONPATH": os.pathsep.join([str(Path(__file__).parent), str(book.ROOT)]),
        },
        capture_output=True,
        text=True,
    )
    if done.returncode:
        return Result(0, 0, 0.0, "", (f"{path.stem} failed under {setting}:\n{done.stderr[-2000:]}",))
    return compare(path, out)


def with_torch(version: str) -> str:
    """The interpreter of an environment that is the book's but for its torch; made if it is not there."""
    folder = FOLDER / f"torch-{version}"
    python = folder / "bin" / "python"
    if not (folder / ".ready").is_file():
        here = book.ROOT / "requirements" / "book.txt"
        kept = [
            line
            for line in here.read_text().splitlines()
            if not line.startswith(("torch==", "torchvision==", "triton", "nvidia-", "cuda-"))
        ]
        FOLDER.mkdir(parents=True, exist_ok=True)
        wanted = FOLDER / f"torch-{version}.txt"
        wanted.write_text("\n".join([*kept, f"torch=={version}", "torchvision"]) + "\n")
        subprocess.run([sys.executable, "-m", "venv", folder], check=True)
        subprocess.run([python, "-m", "pip", "install", "--quiet", "-r", wanted], check=True)
        (folder / ".ready").touch()
    return str(python)


def table(results: dict[str, list[Result]]) -> str:
    """Setting, compared cells, cells in which a digit moved, largest move in tolerances and where, as Markdown."""
    lines = [
        "| setting | cells | cells that moved | largest move, tolerances | where |",
        "|---|---:|---:|---:|---|",
    ]
    for setting, rows in results.items():
        worst = max(rows, key=lambda row: row.largest)
        cells, moved = sum(row.cells for row in rows), sum(row.moved for row in rows)
        lines.append(f"| {setting} | {cells} | {moved} | {worst.largest:.2f} | {worst.place} |")
    return "\n".join(lines)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--settings", nargs="*", choices=list(SETTINGS), default=list(SETTINGS))
    parser.add_argument("--chapters", nargs="*", default=[], help="prefixes of their names; default: all")
    parser.add_argument("--torch", help="also under this version of torch")
    parser.add_argument(
        "--jobs", type=int, default=max(1, (os.cpu_count() or 1) // 2), help="chapters at a time"
    )
    asked = parser.parse_args()
    paths = [
        path
        for path in sorted((book.ROOT / "notebooks").glob("*.ipynb"))
        if not asked.chapters or path.name.startswith(tuple(asked.chapters))
    ]
    jobs = [(name, SETTINGS[name], sys.executable) for name in asked.settings]
    if asked.torch:
        jobs.append((f"torch {asked.torch}", {}, with_torch(asked.torch)))
    results: dict[str, list[Result]] = {name: [] for name, *_ in jobs}
    with concurrent.futures.ThreadPoolExecutor(asked.jobs) as pool:
        began = time.time()
        waiting = {
            pool.submit(run, name, environment, path, python): (name, path)
            for name, environment, python in jobs
            for path in paths
        }
        for done in concurrent.futures.as_completed(waiting):
            (name, path), result = waiting[done], done.result()
            results[name].append(result)
            print(
                f"{time.time() - began:6.0f} s  {name:10s} {path.stem:32s} {result.moved:3d} of {result.cells:3d} cells moved,"
                f" largest {result.largest:.2f} tolerances",
                *result.faults,
                sep="\n    ",
                flush=True,
            )
    print("\n" + table(results))
    if faults := sum(len(row.faults) for rows in results.values() for row in rows):
        sys.exit(f"error: {faults} outputs say something else under another arithmetic.")


if __name__ == "__main__":
    main()
