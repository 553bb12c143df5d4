"""The symmetry profile of a score: what it can and cannot tell apart, whatever it was trained on.

A caption (a r b) has an orbit of four: (a r b), (a r' b), (b r a), (b r' a), made by two involutions,
*flip* the relation and *swap* the nouns. A score on the orbit is the sum of four components, even or
odd under each, and only the one that is odd under both carries direction.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence

import numpy as np
import pandas as pd

from .captions import orbit

#: Components in the order of :func:`components`' columns.
COMPONENTS = ("constant", "flip-odd", "swap-odd", "direction")

# columns (a r b), (a r' b), (b r a), (b r' a)
_SIGNS = np.array([[1, 1, 1, 1], [1, -1, 1, -1], [1, 1, -1, -1], [1, -1, -1, 1]])


def orbit_scores(score: Callable[[Sequence[str]], np.ndarray], captions: Sequence[str]) -> np.ndarray:
    """Scores (n, 4) of each caption's orbit, in the order (a r b), (a r' b), (b r a), (b r' a).

    ``score`` takes n captions and returns n numbers, caption j scored on item j's image; it is
    called four times. Any score will do: a cosine, a matching head, a likelihood, a lambda.

    Raises
    ------
    ValueError : no captions, a score of another shape, NaN or infinity.
    readout_utils.captions.CaptionError : a caption without exactly one directed relation.
    """
    if len(captions) == 0:
        raise ValueError("No captions to score.")
    columns = []
    for variants in zip(*map(orbit, captions), strict=True):
        column = np.asarray(score(list(variants)), dtype=np.float64)
        if column.shape != (len(captions),):
            raise ValueError(
                f"The score returned shape {column.shape} for {len(captions)} captions; one number each "
                "is wanted."
            )
        if not np.isfinite(column).all():
            row = int(np.flatnonzero(~np.isfinite(column))[0])
            raise ValueError(f"The score of {variants[row]!r} (item {row}) is {column[row]}.")
        columns.append(column)
    return np.stack(columns, axis=1)


def components(orbits: np.ndarray) -> np.ndarray:
    """Symmetry components (n, 4) of orbit scores (n, 4), columns as in :data:`COMPONENTS`.

    The score of (a r b) is the sum of its row; that of (a r' b) the sum with the flip-odd and the
    direction component negated, and so on. The transform is orthogonal up to a factor:
    ``(orbits**2).sum() == 4 * (components**2).sum()``.
    """
    orbits = np.asarray(orbits, dtype=np.float64)
    if orbits.ndim != 2 or orbits.shape[1] != 4 or not len(orbits):
        raise ValueError(f"Orbit scores are (n, 4) with n of at least 1, not {orbits.shape}.")
    return orbits @ _SIGNS.T / 4


def direction(orbits: np.ndarray) -> np.ndarray:
    """The direction component (n,): 1/4 [s(a r b) - s(a r' b) - s(b r a) + s(b r' a)]."""
    return components(orbits)[:, 3]


def symmetry_profile(orbits: np.ndarray) -> pd.Series:
    """Shares of a score's non-constant part that are flip-odd, swap-odd and direction; they sum to 1.

    The share of a component is its mean square over the items, divided by the three's sum: the part
    of the score's variance within orbits that the component accounts for. A score constant on every
    orbit has no such part, and its shares are all 0.
    """
    power = (components(orbits)[:, 1:] ** 2).mean(0)
    total = power.sum()
    rounding = (1e-9 * np.abs(orbits).max()) ** 2
    return pd.Series(power / total if total > rounding else power * 0, index=COMPONENTS[1:], name="share")
