"""What a score gets without looking: derangements of the images, and one rule of credit for all."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

#: The published offset of the null partner (997 for VG-Relation and What'sUp-B).
OFFSET = 101
#: Scores closer than this are tied.
TIE = 1e-9


def derangement(sources: Sequence, offset: int = OFFSET) -> np.ndarray:
    """The published null: a partner item, with another source image, for every item.

    The partner of item j is the first item at or after position j + offset, counted cyclically,
    whose source differs from item j's. Deterministic; two items may share a partner.

    Parameters
    ----------
    sources : (n,) source image of each item.
    offset : K of the published kit.

    Returns
    -------
    (n,) indices of the partners.

    Raises
    ------
    ValueError : no items, or all from one source, so that no partner exists.
    """
    _, sources = np.unique(np.asarray(sources), return_inverse=True)
    n = len(sources)
    if n == 0 or (sources == sources[0]).all():
        raise ValueError("A derangement needs items from at least two source images.")
    partner = (np.arange(n) + offset) % n
    while len(same := np.flatnonzero(sources[partner] == sources)):
        partner[same] = (partner[same] + 1) % n
    return partner


def credit(scores: np.ndarray, correct: np.ndarray, tie: float = TIE) -> np.ndarray:
    """Credit (n,) for choosing among k captions: 1 / number of winners if the right one is among them.

    Captions within ``tie`` of the best score win together, so that a constant scorer gets exactly
    1/k wherever the right caption stands.

    Raises
    ------
    ValueError : scores that are not (n, k) with k of at least 2, NaN.
    """
    scores, correct = np.asarray(scores, dtype=np.float64), np.asarray(correct)
    if scores.ndim != 2 or scores.shape[1] < 2 or len(scores) != len(correct) or not len(scores):
        raise ValueError(
            f"Scores are (n, k) with k of at least 2 and {len(correct)} rows, not {scores.shape}."
        )
    if np.isnan(scores).any():
        raise ValueError(f"The scores of item {int(np.argwhere(np.isnan(scores))[0, 0])} hold NaN.")
    wins = scores >= scores.max(1, keepdims=True) - tie
    return wins[np.arange(len(scores)), correct] / wins.sum(1)
