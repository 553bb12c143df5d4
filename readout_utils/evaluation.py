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


Features = ImageFeatures | list[tuple[np.ndarray, ImageFeatures]]


def encode_benchmark(encoder: DualEncoder, benchmark: Items) -> list[tuple[np.ndarray, ImageFeatures]]:
    """Features of a benchmark's images: (indices of images, their features) for each size of picture."""
    return [
        (np.array(members), encoder.encode_images([benchmark.images[i] for i in members]))
        for members in encoder.group_by_grid(benchmark.images)
    ]


def score_items(
    encoder: DualEncoder,
    benchmark: Items,
    readout: Readout,
    features: Features,
    image: np.ndarray | None = None,
) -> np.ndarray:
    """Scores (n, k) of every caption of every item, on the items' own images or on ``image``'s.

    Raises
    ------
    ValueError : items with different numbers of captions, features of other images, a score of the wrong
        shape, NaN or infinity (the caption and the item are named).
    """
    image = benchmark.image if image is None else image
    widths = {len(options) for options in benchmark.captions}
    if len(widths) > 1:
        raise ValueError(f"{benchmark.name} has items with {sorted(widths)} captions; split it by width.")
    k = widths.pop()
    if isinstance(features, ImageFeatures):
        features = [(np.arange(len(features)), features)]
    count = sum(len(members) for members, _ in features)
    if count != len(benchmark.images):
        raise ValueError(f"Features of {count} images for the {len(benchmark.images)} of {benchmark.name}.")
    scores = np.full((len(benchmark), k), np.nan)
    for members, part in features:
        place = np.full(count, -1)
        place[members] = np.arange(len(members))
        rows = np.flatnonzero(place[image] >= 0)
        if not len(rows):
            continue
        flat = [caption for row in rows for caption in benchmark.captions[row]]
        got = np.asarray(readout.score(encoder, part, flat, place[image[rows]].repeat(k)), dtype=np.float64)
        if got.shape != (len(flat),):
            raise ValueError(f"{readout.name} returned shape {got.shape} for {len(flat)} captions.")
        scores[rows] = got.reshape(-1, k)
    if not np.isfinite(scores).all():
        row, column = np.argwhere(~np.isfinite(scores))[0]
        raise ValueError(
            f"{readout.name} scored {benchmark.captions[row][column]!r} (item {row}) as {scores[row, column]}."
        )
    return scores


def evaluate(
    encoder: DualEncoder,
    benchmark: Items,
    readouts: Sequence[Readout],
    *,
    features: Features | None = None,
    offset: int = OFFSET,
    seed: int = 0,
) -> pd.DataFrame:
    """Accuracy, null and grounded gain of readouts on a benchmark.

    The null scores each item's captions on another item's image (see
    :func:`readout_utils.deflation.derangement`); nothing is encoded twice for it. Intervals are
    95 % bootstrap intervals over sources.

    Parameters
    ----------
    features : of ``benchmark.images``, from ``encode_images`` or :func:`encode_benchmark`, if at hand.
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
        features = encode_benchmark(encoder, benchmark)
    names = [readout.name for readout in readouts]
    if twice := {name for name in names if names.count(name) > 1}:
        raise ValueError(f"Two readouts are called {twice.pop()!r}; give one another name.")
    null_image = benchmark.image[derangement(benchmark.source, offset)]
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
            low, high = bootstrap_interval(values, benchmark.source, seed)
            row |= {label: values.mean(), f"{prefix}low": low, f"{prefix}high": high}
        rows[readout.name] = row
    return pd.DataFrame.from_dict(rows, orient="index").rename_axis("readout")
