"""What a Jacobian effective rank costs: exact against randomized, on one core: seconds an image.

python perf/jacobian.py
"""

from __future__ import annotations

import os

os.environ.setdefault("OMP_NUM_THREADS", "1")

import time

import numpy as np
import pandas as pd
import torch
from timm.models.vision_transformer import VisionTransformer

from readout_utils.jacobian import METHODS, jacobian_effective_rank, readout

#: Widths of the embedding.
WIDTHS = (64, 128, 512)


def small_vit(width: int) -> VisionTransformer:
    """An untrained ViT of the pocket encoder's size, 64 px in patches of 8, that embeds into ``width``."""
    torch.manual_seed(0)
    return VisionTransformer(
        img_size=64, patch_size=8, embed_dim=128, depth=4, num_heads=4, num_classes=width
    ).eval()  # fmt: skip


def seconds(action, count: int, repeats: int = 2) -> float:
    """Seconds a thing, the best of some repeats."""
    best = np.inf
    for _ in range(repeats):
        began = time.perf_counter()
        action()
        best = min(best, time.perf_counter() - began)
    return best / count


def measure(count: int = 4, k: int = 32) -> pd.DataFrame:
    """One row an embedding width: seconds an image by each method, their ratio, and how far they differ."""
    torch.set_num_threads(1)
    images = torch.randn(count, 3, 64, 64, generator=torch.Generator().manual_seed(0))
    rows = {}
    for width in WIDTHS:
        function = readout(small_vit(width))
        rank = {}

        def run(method, function=function, rank=rank):
            rank[method] = jacobian_effective_rank(function, images, k, method)

        row = {method: seconds(lambda method=method: run(method), count) for method in METHODS}
        difference = (rank["randomized"] / rank["exact"] - 1).abs().max().item()
        rows[width] = row | {
            "randomized / exact": row["randomized"] / row["exact"],
            "rank": rank["exact"].mean().item(),
            "largest difference, %": 100 * difference,
        }
    return pd.DataFrame(rows).T.rename_axis("embedding width; seconds an image").round(2)


if __name__ == "__main__":
    print(measure().to_string())
