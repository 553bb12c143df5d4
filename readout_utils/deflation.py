"""What a score gets without looking: derangements, one set of credit rules, grounded gain, direction balance."""

from __future__ import annotations

from collections.abc import Sequence
from functools import lru_cache

import numpy as np
import pandas as pd

from .captions import CANONICAL, CaptionError, parse_relation

#: The published offset of the null partner (997 for VG-Relation and What'sUp-B).
OFFSET = 101
#: Scores closer than this are tied.
TIE = 1e-9

_RESAMPLES = 2000
_TRIES = 100  # random permutations drawn before a derangement is made from one


# --- derangements ---------------------------------------------------------------------------------


def derangement(sources: Sequence, offset: int = OFFSET, groups: Sequence | None = None) -> np.ndarray:
    """The published null: a partner item, with another source image, for every item.

    The partner of item j is the first item at or after position j + offset, counted cyclically,
    whose source differs from item j's. Deterministic; two items may share a partner.

    Parameters
    ----------
    sources : (n,) source image of each item.
    offset : K of the published kit (Li et al. 2026).
    groups : (n,) strata; where given, partners are taken within an item's own, positions counted there.

    Returns
    -------
    (n,) indices of the partners.

    Raises
    ------
    ValueError : no items, or a stratum all from one source, so that no partner exists.
    """
    sources = _codes(sources)
    partners = np.empty(len(sources), dtype=int)
    for members in _strata(sources, groups):
        inside, n = sources[members], len(members)
        partner = (np.arange(n) + offset) % n
        while len(same := np.flatnonzero(inside[partner] == inside)):
            partner[same] = (partner[same] + 1) % n
        partners[members] = members[partner]
    return partners


def random_derangements(
    sources: Sequence, count: int, seed: int = 0, groups: Sequence | None = None
) -> np.ndarray:
    """Permutations in which no item gets an item of its own source, drawn uniformly: (count, n) indices.

    Where at least one random permutation in a few dozen qualifies, permutations are drawn until one does.
    Otherwise a Markov chain whose stationary distribution is uniform runs from one that was repaired: each
    step sorts the positions into random pairs or threes, and each of these that may pass its partners round does so
    on a coin's toss.

    Parameters
    ----------
    sources, groups : as for :func:`derangement`.
    count : how many; they are independent.
    seed : fixes them, on any machine.

    Raises
    ------
    ValueError : no items, a count below 1, a source that holds more than half of its stratum, so that no such
        permutation exists.
    """
    sources = _codes(sources)
    if count < 1:
        raise ValueError(f"Ask for at least one derangement, not {count}.")
    drawn = np.empty((count, len(sources)), dtype=int)
    for number, members in enumerate(_strata(sources, groups)):
        inside = sources[members]
        most = int(np.bincount(inside).max())
        if 2 * most > len(members):
            raise ValueError(
                f"One source holds {most} of {len(members)} items: no permutation gives each of them another."
            )
        for round_ in range(count):
            rng = np.random.default_rng([seed, number, round_])
            drawn[round_, members] = members[_random_derangement(inside, rng)]
    return drawn


def _random_derangement(sources: np.ndarray, rng: np.random.Generator) -> np.ndarray:
    n = len(sources)
    for _ in range(_TRIES):
        partner = rng.permutation(n)
        if not (sources[partner] == sources).any():
            return partner
    while len(bad := np.flatnonzero(sources[partner] == sources)):  # repair: exchange with what fits
        j = rng.choice(bad)
        fits = (sources[partner] != sources[j]) & (sources != sources[partner[j]])
        k = rng.choice(np.flatnonzero(fits))
        partner[[j, k]] = partner[[k, j]]
    for step in range(20 + 8 * n.bit_length()):
        size = 2 + step % 2  # pairs alone would leave some derangements of three sources out of reach
        among = rng.permutation(n)[: n // size * size].reshape(-1, size)
        passed = np.roll(partner[among], 1, axis=1)
        change = (sources[passed] != sources[among]).all(1) & (rng.random(len(among)) < 0.5)
        partner[among[change]] = passed[change]
    return partner


def _codes(sources: Sequence) -> np.ndarray:
    _, codes = np.unique(np.asarray(sources), return_inverse=True)
    return codes


def _strata(sources: np.ndarray, groups: Sequence | None) -> list[np.ndarray]:
    """Members of each stratum; refused if one of them has a single source."""
    groups = np.zeros(len(sources), int) if groups is None else _codes(groups)
    if len(groups) != len(sources):
        raise ValueError(f"{len(groups)} groups for {len(sources)} items.")
    strata = [np.flatnonzero(groups == group) for group in np.unique(groups)]
    if not strata or any((sources[members] == sources[members[0]]).all() for members in strata):
        raise ValueError("A derangement needs items from at least two source images (in each group).")
    return strata


# --- credit ---------------------------------------------------------------------------------------


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


def statement_credit(
    scores: np.ndarray, truth: np.ndarray, threshold: float = 0.0, tie: float = TIE
) -> np.ndarray:
    """Credit (n,) for calling statements true when the score lies above a threshold, false below.

    A score within ``tie`` of the threshold says neither and gets one half, as published for an exact zero.

    Raises
    ------
    ValueError : scores and truths that are not (n,), NaN, truths other than 0 and 1.
    """
    scores, truth = _statements(scores, truth)
    signed = (scores - threshold) * np.where(truth, 1.0, -1.0)
    return np.where(np.abs(signed) <= tie, 0.5, (signed > 0).astype(float))


def oracle_threshold(scores: np.ndarray, truth: np.ndarray, tie: float = TIE) -> float:
    """The threshold between two neighbouring scores that gives statements the most credit.

    For scores without a canonical zero, such as a cosine. It is fitted on the labels it is then judged on,
    so that its accuracy is *optimistic*: also on null images, where it is fitted again. Scores that
    are all tied have no threshold between them; theirs is their own value, and every credit one half.

    Raises
    ------
    ValueError : as :func:`statement_credit`.
    """
    scores, truth = _statements(scores, truth)
    order = np.argsort(scores, kind="stable")
    scores, truth = scores[order], truth[order]
    cuts = np.flatnonzero(np.diff(scores) > 2 * tie)  # between positions cut and cut + 1
    if not len(cuts):
        return float(scores.mean())
    false_below = np.cumsum(1 - truth)
    true_above = truth.sum() - np.cumsum(truth)
    best = cuts[np.argmax((false_below + true_above)[cuts])]
    return float((scores[best] + scores[best + 1]) / 2)


def _statements(scores, truth) -> tuple[np.ndarray, np.ndarray]:
    scores, truth = np.asarray(scores, dtype=np.float64), np.asarray(truth).astype(int)
    if scores.ndim != 1 or scores.shape != truth.shape or not len(scores):
        raise ValueError(f"Statements have n scores and n truths, not {scores.shape} and {truth.shape}.")
    if np.isnan(scores).any():
        raise ValueError(f"The score of item {int(np.flatnonzero(np.isnan(scores))[0])} is NaN.")
    if not np.isin(truth, (0, 1)).all():
        raise ValueError("A statement's truth is 0 or 1.")
    return scores, truth


# --- grounded gain --------------------------------------------------------------------------------


@lru_cache(maxsize=4)
def _resamples(count: int, seed: int) -> np.ndarray:
    """How often each of ``count`` sources is drawn in each resample: (resamples, count)."""
    rng = np.random.default_rng(seed)
    return rng.multinomial(count, np.full(count, 1 / count), size=_RESAMPLES).astype(np.float32)


def bootstrap_interval(
    values: np.ndarray, sources: np.ndarray, seed: int = 0, level: float = 0.95
) -> tuple[float, float]:
    """Percentile bootstrap interval of a mean, resampling source images rather than items.

    Items of one image are not independent: an image is drawn with all of its items. For the difference of
    two scores on the same items pass the items' differences, and the interval is paired.

    Raises
    ------
    ValueError : no values, or not as many sources as values.
    """
    values, sources = np.asarray(values, dtype=np.float64), np.asarray(sources)
    if not len(values) or values.shape != sources.shape:
        raise ValueError(f"An interval needs values and a source each, not {values.shape}, {sources.shape}.")
    sources = _codes(sources)
    sums = np.bincount(sources, weights=values)
    counts = np.bincount(sources)
    drawn = _resamples(len(counts), seed)
    means = (drawn @ sums) / (drawn @ counts)
    tail = (1 - level) / 2
    return tuple(np.quantile(means, [tail, 1 - tail]))


def grounded_gain(real: np.ndarray, null: np.ndarray, sources: np.ndarray, seed: int = 0) -> pd.Series:
    """Accuracy, null and their difference, each with its 95 % bootstrap interval over sources.

    Parameters
    ----------
    real, null : (n,) credit of each item on its own image and on its null partner's (or its mean over several
        derangements); the interval of the gain is that of their paired difference.
    sources : (n,) source image of each item.

    Returns
    -------
    Series : accuracy, low, high, null, null_low, null_high, gain, gain_low, gain_high.
    """
    row = {}
    for label, prefix, values in (
        ("accuracy", "", real),
        ("null", "null_", null),
        ("gain", "gain_", real - null),
    ):
        low, high = bootstrap_interval(values, sources, seed)
        row |= {label: float(np.mean(values)), f"{prefix}low": low, f"{prefix}high": high}
    return pd.Series(row)


# --- direction balance ----------------------------------------------------------------------------


def direction_balance(
    captions: Sequence[Sequence[str]], correct: Sequence[int], by: str = "nouns", seed: int = 0
) -> np.ndarray:
    """The largest subset of a pair benchmark whose text alone cannot tell which caption is right.

    Items that offer the same two captions form a cell, and a cell keeps as many items in which the one caption
    is right as in which the other is. A scorer that sees the text and not the picture answers all items of a
    cell alike, and so is right in exactly half of them.

    Parameters
    ----------
    captions : n rows of two captions.
    correct : (n,) which is right.
    by : what "the same" means. ``"captions"``: the same words, and no scorer of text whatsoever can tell.
        ``"nouns"``: the same subject, relation and object, whatever the articles and the synonym.
        ``"relation"``: the same relation, whatever the nouns; larger, and proof only against scorers that
        do not look at the nouns.
    seed : which of a cell's surplus items go.

    Returns
    -------
    Sorted indices of the items kept (perhaps none). By ``"nouns"`` and ``"relation"`` an item that does not
    parse is left out.

    Raises
    ------
    ValueError : rows that are no pairs, an unknown ``by``.
    """
    meanings = _offers(captions, by)
    cells: dict[tuple, tuple[list[int], list[int]]] = {}
    kept: list[int] = []
    for row, (offer, right) in enumerate(zip(meanings, correct, strict=True)):
        if offer is None:
            continue
        if offer[0] != offer[1]:
            cell = tuple(sorted(offer))
            cells.setdefault(cell, ([], []))[int(offer[right] == cell[0])].append(row)
        elif by == "relation":  # the nouns were swapped: without them both captions read the same
            kept.append(row)
    rng = np.random.default_rng(seed)
    for one, two in cells.values():
        size = min(len(one), len(two))
        for rows in (one, two):
            kept += rows if len(rows) == size else rng.choice(rows, size, replace=False).tolist()
    return np.array(sorted(kept), dtype=int)


def same_offer(captions: Sequence[Sequence[str]], by: str = "nouns") -> np.ndarray:
    """Which items offer the same two captions, in the sense of :func:`direction_balance`: (n,) codes.

    Items that do not parse, like all others, share a code only with items of the very same captions.
    """
    offers = [
        tuple(sorted(options if offer is None else offer))
        for options, offer in zip(captions, _offers(captions, by), strict=True)
    ]
    place = {offer: code for code, offer in enumerate(dict.fromkeys(offers))}
    return np.array([place[offer] for offer in offers])


def _offers(captions: Sequence[Sequence[str]], by: str) -> list[tuple | None]:
    """What both captions of each item say; None where one does not parse."""
    if by not in ("captions", "nouns", "relation"):
        raise ValueError(f"Balance by 'captions', 'nouns' or 'relation', not {by!r}.")
    offers: list[tuple | None] = []
    for row, options in enumerate(captions):
        if len(options) != 2:
            raise ValueError(f"Item {row} has {len(options)} captions; direction balance is for pairs.")
        try:
            offers.append(tuple(_meaning(caption, by) for caption in options))
        except CaptionError:
            offers.append(None)
    return offers


def _meaning(caption: str, by: str) -> tuple:
    """What of a caption counts as the same."""
    if by == "captions":
        return (caption,)
    relation = parse_relation(caption)
    said = CANONICAL[relation.phrase]
    return (said,) if by == "relation" else (relation.subject, said, relation.object)
