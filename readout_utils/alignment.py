"""From patch-word similarities to weights over patches, and from weights to centroids.

Shapes throughout: B images, N = rows x columns patches in reading order, m words. Everything is
computed in float64, because a benchmark's ties and small margins are decided here.
"""

from __future__ import annotations

import math

import torch
from torch import Tensor

#: The published setting: temperature of softmax and coupling, iterations and tolerance.
TEMPERATURE = 0.05
MAX_ITERATIONS = 200
TOLERANCE = 1e-9

#: How weights are made of similarities, see :func:`weights`.
VARIANTS = ("excess", "dense", "coupling", "argmax")


def similarity(patches: Tensor, words: Tensor) -> Tensor:
    """Cosine of every patch with every word.

    Parameters
    ----------
    patches : (B, N, D) patch features.
    words : (B, m, D) word features of each image's caption, or (m, D) for all images alike.

    Returns
    -------
    (B, N, m) float64 in [-1, 1].

    Raises
    ------
    ValueError : shapes that do not fit, no patches, no words, a zero vector, NaN or infinity.
    """
    if patches.ndim != 3 or words.ndim not in (2, 3) or patches.shape[-1] != words.shape[-1]:
        raise ValueError(
            "similarity takes patches (B, N, D) and words (B, m, D) or (m, D), "
            f"not {tuple(patches.shape)} and {tuple(words.shape)}."
        )
    unit_patches, unit_words = (_unit(x, what) for x, what in ((patches, "patch"), (words, "word")))
    return unit_patches @ unit_words.mT


def _unit(vectors: Tensor, what: str) -> Tensor:
    if 0 in vectors.shape:
        raise ValueError(f"No {what} features: the shape is {tuple(vectors.shape)}.")
    vectors = vectors.double()
    length = vectors.norm(dim=-1, keepdim=True)
    if not torch.isfinite(length).all():
        raise ValueError(f"A {what} feature holds NaN or infinity; check the image and the weights.")
    if (length == 0).any():
        raise ValueError(f"A {what} feature is zero and has no direction.")
    return vectors / length


def coupling(
    similarity: Tensor,
    temperature: float = TEMPERATURE,
    max_iterations: int = MAX_ITERATIONS,
    tolerance: float = TOLERANCE,
) -> Tensor:
    """Entropic coupling of patches and words with uniform marginals (Sinkhorn's algorithm).

    The (B, N, m) coupling that maximises <similarity, pi> + temperature * H(pi) with row sums 1/N
    and column sums 1/m (Cuturi 2013). Alternating normalisation in the log domain, so that no
    temperature underflows; each image stops by itself once its row sums are within ``tolerance``
    of 1/N in total, so that its coupling does not depend on the rest of the batch.

    Raises
    ------
    ValueError : not (B, N, m), empty, NaN or infinity, a temperature that is not positive.
    """
    scores = _checked(similarity, temperature)
    n, m = scores.shape[1:]
    log_row, log_column = -math.log(n), -math.log(m)
    active = torch.arange(len(scores), device=scores.device)
    g = scores.new_zeros(len(scores), 1, m)
    f = log_row - torch.logsumexp(scores + g, dim=2, keepdim=True)
    final_f, final_g = f.clone(), g.clone()
    for _ in range(max_iterations):
        g = log_column - torch.logsumexp(scores + f, dim=1, keepdim=True)
        row_sums = torch.logsumexp(scores + g, dim=2, keepdim=True)
        error = ((f + row_sums).exp() - 1 / n).abs().sum((1, 2))
        final_f[active], final_g[active] = f, g
        going = error > tolerance
        if not going.any():
            break
        if not going.all():
            scores, active, row_sums, g = scores[going], active[going], row_sums[going], g[going]
        f = log_row - row_sums
    return (_checked(similarity, temperature) + final_f + final_g).exp()


def weights(similarity: Tensor, variant: str = "excess", temperature: float = TEMPERATURE) -> Tensor:
    """Non-negative weights of patches for each word: (B, N, m), not normalised.

    ``"excess"``
        what the coupling holds beyond an even spread: max(coupling - 1/(N m), 0).
    ``"dense"``
        a softmax over patches of similarity / temperature, each word by itself.
    ``"coupling"``
        the coupling itself.
    ``"argmax"``
        all weight on the most similar patch (the first of equals).

    Source: Li et al. 2026; "dense" is their ADR-pi-d, "excess" their default.
    """
    if variant == "dense":
        return torch.softmax(_checked(similarity, temperature), dim=1)
    if variant == "argmax":
        best = _checked(similarity, temperature).argmax(dim=1, keepdim=True)
        return torch.zeros_like(similarity, dtype=torch.float64).scatter_(1, best, 1.0)
    if variant in ("coupling", "excess"):
        pi = coupling(similarity, temperature)
        n, m = pi.shape[1:]
        return pi if variant == "coupling" else (pi - 1 / (n * m)).clamp(min=0)
    raise ValueError(f"Unknown variant {variant!r}; there are {', '.join(VARIANTS)}.")


def _checked(similarity: Tensor, temperature: float) -> Tensor:
    """similarity / temperature as float64, refused if it cannot be aligned."""
    if similarity.ndim != 3 or 0 in similarity.shape:
        raise ValueError(f"Similarities are (B, N, m), none of them 0; got {tuple(similarity.shape)}.")
    if not temperature > 0 or not math.isfinite(temperature):
        raise ValueError(f"The temperature is a positive number, not {temperature!r}.")
    if not torch.isfinite(similarity).all():
        raise ValueError("Similarities hold NaN or infinity; check the features they came from.")
    return similarity.double() / temperature


def patch_centers(grid: tuple[int, int]) -> Tensor:
    """Centres of a (rows, columns) grid's patches: (N, 2) float64, x right and y down in (0, 1)."""
    rows, columns = grid
    if rows < 1 or columns < 1:
        raise ValueError(f"A grid has at least one row and one column, not {grid}.")
    y = (torch.arange(rows, dtype=torch.float64) + 0.5) / rows
    x = (torch.arange(columns, dtype=torch.float64) + 0.5) / columns
    return torch.stack([x.repeat(rows), y.repeat_interleave(columns)], dim=1)


def centroids(weights: Tensor, grid: tuple[int, int]) -> Tensor:
    """Weighted mean of patch centres for each word: (B, m, 2), x right and y down.

    A word whose weights sum to less than 1e-30 is divided by that floor, as published: its
    centroid then lies at the origin.
    """
    centers = patch_centers(grid)
    if weights.ndim != 3 or weights.shape[1] != len(centers):
        raise ValueError(
            f"Weights are (B, {len(centers)}, m) for a grid of {grid}, not {tuple(weights.shape)}."
        )
    mass = weights.sum(1).clamp(min=1e-30)
    return torch.einsum("bnm,nd->bmd", weights, centers.to(weights)) / mass[..., None]
