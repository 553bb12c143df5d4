"""How fast the small world and the readouts are, on one core: a table of rates.

python perf/speed.py
"""

from __future__ import annotations

import os

os.environ.setdefault("OMP_NUM_THREADS", "1")

import time

import numpy as np
import pandas as pd
import torch

from readout_utils.alignment import coupling
from readout_utils.benchmarks import load_benchmark
from readout_utils.encoders import load_encoder
from readout_utils.readouts import Displacement
from readout_utils.scenes import caption_scenes, draw_scenes, random_scenes


def rate(action, count: int, repeats: int = 3) -> float:
    """Things a second, the best of some repeats; the first, which fills caches, does not count."""
    action()
    best = np.inf
    for _ in range(repeats):
        began = time.perf_counter()
        action()
        best = min(best, time.perf_counter() - began)
    return count / best


def measure() -> pd.DataFrame:
    """One row a task, its rate a second on one core."""
    torch.set_num_threads(1)
    scenes = random_scenes(2048, 0)
    encoder = load_encoder("pocket")
    benchmark = load_benchmark("scenes/left-right")
    features = encoder.encode_images(benchmark.images)
    captions = benchmark.right_captions()
    table = torch.rand(2000, 64, 2) * 0.3
    rates = {
        "scenes sampled": rate(lambda: random_scenes(2048, 0), 2048),
        "scenes drawn at 64 px": rate(lambda: draw_scenes(scenes), 2048),
        "scenes captioned": rate(lambda: caption_scenes(scenes, 0), 2048),
        "loads of the pocket encoder": rate(lambda: load_encoder("pocket"), 1),
        "images encoded": rate(lambda: encoder.encode_images(benchmark.images), len(benchmark.images), 1),
        "couplings of 64 patches and 2 words": rate(lambda: coupling(table), 2000),
        "captions scored by ADR excess": rate(
            lambda: Displacement("excess").score(encoder, features, captions, benchmark.image), 2000
        ),
        "captions scored by ADR dense": rate(
            lambda: Displacement("dense").score(encoder, features, captions, benchmark.image), 2000
        ),
    }
    return pd.DataFrame({"per second": rates}).rename_axis("on one core").round(0).astype(int)


if __name__ == "__main__":
    print(measure())
