"""Readouts times benchmark to one table, with the null beside every accuracy."""

from __future__ import annotations

from collections.abc import Sequence
from functools import lru_cache

import numpy as np
import pandas as pd

from .benchmarks import Items
from .deflation import OFFSET, credit, derangement
from .encoders import DualEncoder, ImageFeatures
from .readouts import Readout

_RESAMPLES = 2000


@lru_cache(maxsize=4)
def _resamples(count: int, seed: int) -> np.ndarray:
    """How often each of ``count`` sources is drawn in each resample: (resamples, count)."""
    rng = np.random.default_rng(seed)
    return rng.multinomial(count, np.full(count, 1 / count), size=_RESAMPLES).astype(np.float32)


def bootstrap_interval(
    values: np.ndarray, sources: np.ndarray, seed: int = 0, level: float = 0.95
) -> tuple[float, float]:
    """Percentile bootstrap interval of a mean, resampling source images rather than items.

    Items of one image are not independent: an image is drawn with all of its items.
    """
    _, sources = np.unique(sources, return_inverse=True)
    sums = np.bincount(sources, weights=values)
    counts = np.bincount(sources)
    drawn = _resamples(len(counts), seed)
    means = (drawn @ sums) / (drawn @ counts)
    tail = (1 - level) / 2
    return tuple(np.quantile(means, [tail, 1 - tail]))


def score_items(
    encoder: DualEncoder,
    benchmark: Items,
    readout: Readout,
    features: ImageFeatures,
    image: np.ndarray | None = None,
) -> np.ndarray:
    """Scores (n, k) of every caption of every item, on the items' own images or on ``image``'s."""
    image = benchmark.image if image is None else image
    widths = {len(options) for options in benchmark.captions}
    if len(widths) > 1:
        raise ValueError(f"{benchmark.name} has items with {sorted(widths)} captions; split it by width.")
    k = widths.pop()
    flat = [caption for options in benchmark.captions for caption in options]
    scores = np.asarray(readout.score(encoder, features, flat, np.repeat(image, k)), dtype=np.float64)
    if scores.shape != (len(flat),):
        raise ValueError(f"{readout.name} returned shape {scores.shape} for {len(flat)} captions.")
    if not np.isfinite(scores).all():
        row = int(np.flatnonzero(~np.isfinite(scores))[0])
        raise ValueError(f"{readout.name} scored {flat[row]!r} (item {row // k}) as {scores[row]}.")
    return scores.reshape(-1, k)


def evaluate(
    encoder: DualEncoder,
    benchmark: Items,
    readouts: Sequence[Readout],
    *,
    features: ImageFeatures | None = None,
    offset: int = OFFSET,
    seed: int = 0,
) -> pd.DataFrame:
    """Accuracy, null and grounded gain of readouts on a benchmark.

    The null scores each item's captions on another item's image (see
    :func:`readout_utils.deflation.derangement`); nothing is encoded twice for it. Intervals are
    95 % bootstrap intervals over source images.

    Parameters
    ----------
    features : features of ``benchmark.images``, if they are at hand.
    offset : of the derangement.
    seed : of the bootstrap.

    Returns
    -------
    DataFrame, one row a readout: n, accuracy, low, high, null, null_low, null_high, gain, gain_low,
    gain_high (fractions of 1).
    """
    if not len(readouts):
        raise ValueError("Name at least one readout.")
    if features is None:
        features = encoder.encode_images(benchmark.images)
    null_image = benchmark.image[derangement(benchmark.image, offset)]
    rows = {}
    for readout in readouts:
        real = credit(score_items(encoder, benchmark, readout, features), benchmark.correct)
        null = credit(score_items(encoder, benchmark, readout, features, null_image), benchmark.correct)
        row: dict[str, float] = {"n": len(benchmark)}
        for label, prefix, values in (
            ("accuracy", "", real),
            ("null", "null_", null),
            ("gain", "gain_", real - null),
        ):
            low, high = bootstrap_interval(values, benchmark.image, seed)
            row |= {label: values.mean(), f"{prefix}low": low, f"{prefix}high": high}
        rows[readout.name] = row
    return pd.DataFrame.from_dict(rows, orient="index").rename_axis("readout")
