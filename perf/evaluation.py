"""How fast the kit evaluates, against the evaluation written out one caption at a time.

    python perf/evaluation.py

Deployed, excess and dense, on real and null images, pictures and texts encoded; items a second on one core.
"""

from __future__ import annotations

import os

os.environ.setdefault("OMP_NUM_THREADS", "1")

import resource
import sys
import time
from pathlib import Path

import pandas as pd
import torch

sys.path.insert(0, str(Path(__file__).parents[1] / "tests"))
from reference import reference_evaluate

from readout_utils.benchmarks import load_benchmark
from readout_utils.encoders import load_encoder
from readout_utils.evaluation import evaluate
from readout_utils.readouts import Deployed, Displacement


def measure(few: int = 200, many: int = 4000) -> pd.DataFrame:
    """One row an implementation: items, seconds, items a second, times as fast."""
    torch.set_num_threads(1)
    encoder = load_encoder("pocket")
    readouts = [Deployed(), Displacement("excess"), Displacement("dense")]
    evaluate(encoder, load_benchmark("scenes/left-right", items=40), readouts)  # fills caches
    rows = {}
    for name, items, action in (
        ("one caption at a time", few, lambda benchmark: reference_evaluate(encoder, benchmark)),
        ("the kit", few, lambda benchmark: evaluate(encoder, benchmark, readouts)),
        ("the kit, more items", many, lambda benchmark: evaluate(encoder, benchmark, readouts)),
    ):
        benchmark = load_benchmark("scenes/left-right", items=items)
        began = time.perf_counter()
        action(benchmark)
        seconds = time.perf_counter() - began
        rows[name] = {"items": items, "seconds": seconds, "items a second": items / seconds}
    table = pd.DataFrame.from_dict(rows, orient="index")
    table["times as fast"] = table["items a second"] / table["items a second"].iloc[0]
    return table.round(1)


def memory(sizes=(2000, 8000, 32000)) -> pd.Series:
    """Peak memory in MB after evaluating ever more items; pictures and scores grow, features do not."""
    encoder, peaks = load_encoder("pocket"), {}
    for items in sizes:
        evaluate(encoder, load_benchmark("scenes/left-right", items=items), [Deployed(), Displacement()])
        peaks[items] = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024
    return pd.Series(peaks, name="peak MB").round(0).rename_axis("items")


if __name__ == "__main__":
    print(measure(), "\n")
    print(memory())
