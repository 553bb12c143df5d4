"""Global geometry of a cloud of embeddings: how it is spread, whatever map made it.

Every measure takes embeddings (n, D), one row an image, as an array or a tensor, and returns a number.
What a measure ignores decides which encoders it may compare:

======================================  ========  =======  =======================================
measure                                 rotation  scale    compares only at equal
======================================  ========  =======  =======================================
participation ratio, corrected          ignored   ignored
participation ratio, plain              ignored   ignored  n (it comes out low by about PR / n)
global isotropy                         ignored   ignored
local isotropy                          ignored   ignored  n and number of neighbours
entropy effective rank                  ignored   ignored  n
uniformity, alignment                   ignored   ignored  (rows are normalised first)
VICReg's variance and covariance terms  not       not      scale and axes: terms of a loss
======================================  ========  =======  =======================================

All is computed in float64. Nothing here returns NaN: an input on which a measure has no meaning is an
error that says so.
"""

from __future__ import annotations

import numpy as np
import pandas as pd
from scipy.spatial.distance import pdist
from scipy.special import logsumexp
from sklearn.neighbors import NearestNeighbors
from torch import Tensor

#: Neighbours whose shape :func:`local_isotropy` takes.
NEIGHBOURS = 20

# Spread below so small a share of the rows' length is what rounding leaves of a constant (float32 input).
_CONSTANT = 1e-6


def covariance_spectrum(embeddings) -> np.ndarray:
    """Eigenvalues (D,) of the embeddings' covariance, largest first; they sum to the total variance.

    Centred, divided by n - 1, rows not normalised. At most n - 1 of them are not zero.

    Raises
    ------
    ValueError : not (n, D), fewer than 2 rows, NaN or infinity, all rows the same.
    """
    centred = _centred(embeddings, 2, "A covariance")
    singular = np.linalg.svd(centred, compute_uv=False)
    spectrum = np.zeros(centred.shape[1])
    spectrum[: len(singular)] = singular[: len(spectrum)] ** 2 / (len(centred) - 1)
    return spectrum


def participation_ratio(embeddings, corrected: bool = True) -> float:
    """Global participation ratio over the dimension: (sum l)^2 / (D sum l^2), in [1 / D, 1].

    l are the eigenvalues of the centred covariance C (Chung and Kim 2026), so that the ratio is
    (tr C)^2 / (D tr C^2). It says what share of the D directions carries variance.

    Parameters
    ----------
    embeddings : (n, D).
    corrected : the plain ratio puts the sample covariance for C. Its sum of squares is too large by about
        (tr C)^2 / n, which makes PR = (sum l)^2 / sum l^2 come out near 1 / (1/PR + 1/n): low by a share
        of about PR / n. The corrected ratio divides unbiased estimates of (tr C)^2 and tr C^2, for any
        distribution with fourth moments. With S the sample covariance, r_i the centred rows and
        Q = ``sum ||r_i||^4 / (n - 1)``, they are, up to one common factor (Himeno and Yamada 2014, "Estimations for
        some functions of covariance matrix in high dimension under non-normality")::

            tr C^2    ~  (n - 1)(n - 2) tr S^2 + (tr S)^2 - n Q
            (tr C)^2  ~  2 tr S^2 + (n^2 - 3 n + 1)(tr S)^2 - n Q

        A quotient of unbiased estimates is not itself unbiased, but what is left is of a smaller order.
        It can leave the possible range when n is small; it is then the end of [1 / D, 1] that it passed,
        and 1 when the estimate of tr C^2 is not positive (no direction stands out of the noise).

    Raises
    ------
    ValueError : as :func:`covariance_spectrum`; fewer than 4 rows for the corrected ratio.
    """
    centred = _centred(embeddings, 4 if corrected else 2, "A corrected participation ratio")
    n, dimensions = centred.shape
    # the Gram matrix and the covariance have the same traces; the smaller one is cheaper
    smaller = (centred @ centred.T if n < dimensions else centred.T @ centred) / (n - 1)
    squares, square = (smaller**2).sum(), np.trace(smaller) ** 2
    if corrected:
        kurtosis = n * ((centred**2).sum(1) ** 2).sum() / (n - 1)
        squares, square = (
            (n - 1) * (n - 2) * squares + square - kurtosis,
            2 * squares + (n * n - 3 * n + 1) * square - kurtosis,
        )
    ratio = square / (dimensions * squares) if squares > 0 else 1.0
    return float(np.clip(ratio, 1 / dimensions, 1.0))


def global_isotropy(embeddings) -> float:
    """1 - l_1 / sum l: the share of variance outside the leading direction, in [0, 1 - 1/D].

    l are the eigenvalues of the centred covariance, rows not normalised (Chung and Kim 2026).

    Raises
    ------
    ValueError : as :func:`covariance_spectrum`.
    """
    spectrum = covariance_spectrum(embeddings)
    return float(1 - spectrum[0] / spectrum.sum())


def local_isotropy(embeddings, neighbours: int = NEIGHBOURS) -> float:
    """:func:`global_isotropy` of each row's nearest neighbours, averaged over the rows.

    Chung and Kim (2026) name a local isotropy; that it is the global one over the k nearest neighbours
    (Euclidean, the row itself left out, centred on their own mean) is inferred. It lies in
    [0, 1 - 1 / min(k - 1, D)] and compares only at equal k and n. Neighbourhoods whose points all coincide
    have no shape and are left out of the mean.

    Raises
    ------
    ValueError : as :func:`covariance_spectrum`; fewer than 2 neighbours, or no more rows than neighbours;
        every neighbourhood a single point.
    """
    if neighbours < 2:
        raise ValueError(f"A neighbourhood needs at least 2 neighbours, not {neighbours}.")
    centred = _centred(embeddings, neighbours + 1, f"Local isotropy over {neighbours} neighbours")
    # asked without points, scikit-learn leaves each row out of its own neighbours
    near = NearestNeighbors(n_neighbors=neighbours).fit(centred).kneighbors(return_distance=False)
    shares = []
    for rows in np.array_split(near, -(-len(near) // 256)):  # (rows, k, D) at once, not (n, k, D)
        local = centred[rows]
        length = (local**2).sum((1, 2))
        local = local - local.mean(1, keepdims=True)
        spectrum = np.linalg.eigvalsh(local @ local.transpose(0, 2, 1))
        total = spectrum.sum(1)
        spread = total > _CONSTANT**2 * length
        shares.append(1 - spectrum[spread, -1] / total[spread])
    shares = np.concatenate(shares)
    if not len(shares):
        raise ValueError(
            "Every neighbourhood is one point, repeated; remove repeated rows, or ask for more neighbours."
        )
    return float(shares.mean())


def uniformity(embeddings, t: float = 2.0) -> float:
    """Log of the mean of ``exp(-t ||x - y||^2)`` over pairs of rows of length 1; at most 0, low is uniform.

    Source: Wang and Isola 2020, "Understanding contrastive representation learning through alignment and
    uniformity on the hypersphere"; t = 2 is theirs. Rows are normalised first, and pairs are of different
    rows (all n (n - 1) / 2 are held in memory at once). Rows that are all the same give 0, the worst value.

    Raises
    ------
    ValueError : not (n, D), fewer than 2 rows, NaN or infinity, a zero row, t not positive.
    """
    if not t > 0:
        raise ValueError(f"t is a positive number, not {t!r}.")
    squared = pdist(_unit_rows(embeddings, 2, "Uniformity"), "sqeuclidean")
    return float(logsumexp(-t * squared) - np.log(len(squared)))


def alignment(embeddings, augmented, power: float = 2.0) -> float:
    """Mean of ``||x - x'||^power`` between each row and its partner, both normalised to length 1; low is aligned.

    Source: Wang and Isola 2020; power = 2 is theirs, and gives a number in [0, 4].

    Parameters
    ----------
    embeddings, augmented : (n, D), row i of both from two views of one image.

    Raises
    ------
    ValueError : not (n, D), shapes that differ, NaN or infinity, a zero row, a power that is not positive.
    """
    if not power > 0:
        raise ValueError(f"power is a positive number, not {power!r}.")
    one, other = _unit_rows(embeddings, 1, "Alignment"), _unit_rows(augmented, 1, "Alignment")
    if one.shape != other.shape:
        raise ValueError(f"Each row needs its partner: the shapes are {one.shape} and {other.shape}.")
    return float((np.linalg.norm(one - other, axis=1) ** power).mean())


def entropy_effective_rank(embeddings) -> float:
    """exp of the entropy of the singular values, scaled to sum 1, in [1, min(n - 1, D)].

    Source: Roy and Vetterli 2007, "The effective rank", of the centred (n, D) matrix. (RankMe, Garrido et al.
    2023, takes the same number of the matrix that is not centred.)

    Raises
    ------
    ValueError : as :func:`covariance_spectrum`.
    """
    singular = np.sqrt(covariance_spectrum(embeddings))
    shares = singular[singular > 0] / singular.sum()
    return float(np.exp(-(shares * np.log(shares)).sum()))


def vicreg_variance(embeddings, target: float = 1.0, epsilon: float = 1e-4) -> float:
    """VICReg's variance term: the mean over dimensions of max(0, target - sqrt(var_j + epsilon)).

    Source: Bardes, Ponce and LeCun 2022, "VICReg", equation 1, with its target and epsilon; var_j divides by
    n - 1. Depends on the scale and the axes: of unit-norm embeddings, whose deviations are about
    1 / sqrt(D), it is near 1 whatever their shape. Constant embeddings give target - sqrt(epsilon).

    Raises
    ------
    ValueError : not (n, D), fewer than 2 rows, NaN or infinity.
    """
    deviation = np.sqrt(_checked(embeddings, 2, "A variance").var(0, ddof=1) + epsilon)
    return float(np.maximum(target - deviation, 0).mean())


def vicreg_covariance(embeddings) -> float:
    """VICReg's covariance term: the sum of squared covariances of different dimensions, divided by D.

    Source: Bardes, Ponce and LeCun 2022, "VICReg", equations 3 and 4. Depends on the scale (by its fourth
    power) and on the axes: a rotation to the covariance's eigenvectors makes it 0. Constant embeddings
    give 0.

    Raises
    ------
    ValueError : not (n, D), fewer than 2 rows, NaN or infinity.
    """
    rows = _checked(embeddings, 2, "A covariance")
    covariance = np.atleast_2d(np.cov(rows, rowvar=False))
    return float(((covariance**2).sum() - (np.diag(covariance) ** 2).sum()) / rows.shape[1])


def geometry_table(embeddings, augmented=None, neighbours: int = NEIGHBOURS) -> pd.Series:
    """Every measure of this module on one cloud of embeddings.

    Parameters
    ----------
    embeddings : (n, D).
    augmented : (n, D) embeddings of a second view of the same images; without them there is no alignment row.
    neighbours : of the local isotropy.

    Returns
    -------
    Series of numbers, none of them NaN.

    Raises
    ------
    ValueError : too few rows (at least 4, and more than neighbours), NaN or infinity, all rows the same, a
        zero row, another shape.
    """
    measures = {
        "participation ratio": participation_ratio(embeddings),
        "participation ratio, plain": participation_ratio(embeddings, corrected=False),
        "global isotropy": global_isotropy(embeddings),
        "local isotropy": local_isotropy(embeddings, neighbours),
        "effective rank": entropy_effective_rank(embeddings),
        "uniformity": uniformity(embeddings),
        "variance term": vicreg_variance(embeddings),
        "covariance term": vicreg_covariance(embeddings),
    }
    if augmented is not None:
        measures["alignment"] = alignment(embeddings, augmented)
    return pd.Series(measures, name="geometry")


def _checked(embeddings, least: int, what: str) -> np.ndarray:
    """Embeddings as (n, D) float64, refused if they are no such thing or too few."""
    if isinstance(embeddings, Tensor):
        embeddings = embeddings.detach().cpu().double().numpy()
    rows = np.asarray(embeddings, dtype=np.float64)
    if rows.ndim != 2 or 0 in rows.shape:
        raise ValueError(f"Embeddings are (n, D), one row an image, not {rows.shape}.")
    if not np.isfinite(rows).all():
        raise ValueError(
            f"Embedding {int(np.flatnonzero(~np.isfinite(rows).all(1))[0])} holds NaN or infinity; check the "
            "image and the encoder."
        )
    if len(rows) < least:
        raise ValueError(
            f"{what} needs at least {least} embeddings, and there are {len(rows)}; encode more images."
        )
    return rows


def _centred(embeddings, least: int, what: str) -> np.ndarray:
    rows = _checked(embeddings, least, what)
    centred = rows - rows.mean(0)
    if np.linalg.norm(centred) <= _CONSTANT * np.linalg.norm(rows):
        raise ValueError(
            f"All embeddings are the same to within {_CONSTANT:g} of their length, and have no spread to "
            "measure; check that the images differ and that the encoder has not collapsed."
        )
    return centred


def _unit_rows(embeddings, least: int, what: str) -> np.ndarray:
    rows = _checked(embeddings, least, what)
    length = np.linalg.norm(rows, axis=1, keepdims=True)
    if (length == 0).any():
        raise ValueError(f"Embedding {int(length.argmin())} is zero and has no direction on the sphere.")
    return rows / length
