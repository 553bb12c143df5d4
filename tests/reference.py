"""The evaluation written out: one caption at a time, in numpy, nothing shared and nothing batched.

What a reader would write from the paper, to check the kit against and to measure its speed by.
"""

from __future__ import annotations

import numpy as np

from readout_utils.captions import parse_relation


def reference_coupling(table: np.ndarray, temperature: float = 0.05) -> np.ndarray:
    """Sinkhorn's algorithm on one (N, m) table, uniform marginals."""
    n, m = table.shape
    kernel = np.exp((table - table.max()) / temperature)
    u, v = np.ones(n), np.ones(m)
    for _ in range(200):
        u = (1 / n) / (kernel @ v)
        v = (1 / m) / (kernel.T @ u)
        pi = u[:, None] * kernel * v
        if np.abs(pi.sum(1) - 1 / n).sum() <= 1e-9:
            break
    return pi


def reference_scores(
    encoder, image, caption: str, readouts=("deployed", "excess", "dense")
) -> dict[str, float]:
    """Scores of one caption on one picture."""
    features = encoder.encode_images([image])
    patches = features.patches[0].numpy().astype(float)
    rows, columns = features.grid
    centers = np.array([((c + 0.5) / columns, (r + 0.5) / rows) for r in range(rows) for c in range(columns)])
    relation = parse_relation(caption)
    words = sorted([relation.subject, relation.object])
    vectors = np.stack([encoder.encode_texts([word])[0].numpy().astype(float) for word in words])
    vectors /= np.linalg.norm(vectors, axis=1, keepdims=True)
    patches /= np.linalg.norm(patches, axis=1, keepdims=True)
    table = patches @ vectors.T
    scores = {}
    for readout in readouts:
        if readout == "deployed":
            pooled = features.pooled[0].numpy().astype(float)
            scores[readout] = float(pooled @ encoder.encode_texts([caption])[0].numpy().astype(float))
            continue
        if readout == "excess":
            weights = np.maximum(reference_coupling(table) - 1 / table.size, 0)
        else:
            weights = np.exp(table / 0.05)
            weights /= weights.sum(0)
        places = (weights.T @ centers) / np.maximum(weights.sum(0), 1e-30)[:, None]
        apart = places[words.index(relation.subject)] - places[words.index(relation.object)]
        scores[readout] = float(apart @ np.array(relation.axis))
    return scores


def reference_evaluate(
    encoder, benchmark, readouts=("deployed", "excess", "dense")
) -> dict[str, tuple[float, float]]:
    """Accuracy and null of each readout on a benchmark of pairs, item by item."""
    n = len(benchmark)
    credits = {readout: np.zeros((2, n)) for readout in readouts}
    for j in range(n):
        partner = (j + benchmark.null_offset) % n
        while benchmark.source[partner] == benchmark.source[j]:
            partner = (partner + 1) % n
        for number, image in enumerate((benchmark.image[j], benchmark.image[partner])):
            both = [
                reference_scores(encoder, benchmark.images[image], c, readouts) for c in benchmark.captions[j]
            ]
            right, wrong = both[benchmark.correct[j]], both[1 - benchmark.correct[j]]
            for readout in readouts:
                apart = right[readout] - wrong[readout]
                credits[readout][number, j] = 0.5 if abs(apart) <= 1e-9 else float(apart > 0)
    return {readout: (values[0].mean(), values[1].mean()) for readout, values in credits.items()}
