"""What a score gets without looking: derangements, one set of credit rules, grounded gain, direction balance."""

from __future__ import annotations

from collections.abc import Sequence

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
        start = (np.arange(n) + offset) % n
        # from each position, the first at or after it, around the circle, whose source differs from its own
        twice = np.concatenate([inside, inside])
        changes = np.flatnonzero(np.diff(twice)) + 1
        onward = changes[np.searchsorted(changes, start, side="right")] % n
        partners[members] = members[np.where(inside[start] == inside, onward, start)]
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
                f"One source, that of item {members[inside == np.bincount(inside).argmax()][0]}, holds {most} of "
                f"{len(members)} items: no permutation gives each of them another."
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
    for j in np.flatnonzero(sources[partner] == sources):  # repair: exchange with one that fits
        if sources[partner[j]] != sources[j]:
            continue
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
    sources = np.asarray(sources)
    if sources.ndim != 1 or pd.isna(sources).any():
        raise ValueError(f"Sources and groups are one name an item, none missing; got shape {sources.shape}.")
    return np.unique(sources, return_inverse=True)[1]


def _strata(sources: np.ndarray, groups: Sequence | None) -> list[np.ndarray]:
    """Members of each stratum; refused if one of them has a single source."""
    groups = np.zeros(len(sources), int) if groups is None else np.asarray(groups)
    if len(groups) != len(sources):
        raise ValueError(f"{len(groups)} groups for {len(sources)} items.")
    codes = _codes(groups)
    strata = [np.flatnonzero(codes == code) for code in range(codes.max(initial=-1) + 1)]
    if not strata:
        raise ValueError("A derangement needs items from at least two source images; there are no items.")
    for members in strata:
        if (sources[members] == sources[members[0]]).all():
            raise ValueError(
                f"A derangement needs items from at least two source images; group {str(groups[members[0]])!r} has one."
            )
    return strata


# --- credit ---------------------------------------------------------------------------------------


def credit(scores: np.ndarray, correct: np.ndarray, tie: float = TIE) -> np.ndarray:
    """Credit (n,) for choosing among k captions: 1 / number of winners if the right one is among them.

    Captions within ``tie`` of the best score win together, so that a constant scorer gets exactly
    1/k wherever the right caption stands.

    Raises
    ------
    ValueError : scores that are not (n, k) with k of at least 2, NaN, a right caption that is not there.
    """
    scores, correct = np.asarray(scores, dtype=np.float64), np.asarray(correct)
    if scores.ndim != 2 or scores.shape[1] < 2 or len(scores) != len(correct) or not len(scores):
        raise ValueError(
            f"Scores are (n, k) with k of at least 2 and {len(correct)} rows, not {scores.shape}."
        )
    correct = _whole_numbers(correct, scores.shape[1], "correct")
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
    scores, truth = np.asarray(scores, dtype=np.float64), np.asarray(truth)
    if scores.ndim != 1 or scores.shape != truth.shape or not len(scores):
        raise ValueError(f"Statements have n scores and n truths, not {scores.shape} and {truth.shape}.")
    if np.isnan(scores).any():
        raise ValueError(f"The score of item {int(np.flatnonzero(np.isnan(scores))[0])} is NaN.")
    return scores, _whole_numbers(truth, 2, "truth")


def _whole_numbers(values: np.ndarray, below: int, what: str) -> np.ndarray:
    if not (np.issubdtype(values.dtype, np.integer) or values.dtype == bool):
        raise ValueError(f"{what} holds {values.dtype}, not whole numbers.")
    if (values < 0).any() or (values >= below).any():
        raise ValueError(f"{what} holds numbers from 0 to {below - 1}, not {values.min()} to {values.max()}.")
    return values.astype(int)


# --- grounded gain --------------------------------------------------------------------------------


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
    low, high = _bootstrap(values[:, None], sources, seed, level)[:, 0]
    return float(low), float(high)


def _bootstrap(values: np.ndarray, sources: np.ndarray, seed: int, level: float = 0.95) -> np.ndarray:
    """Intervals (2, c) of the means of c columns (n, c), on the same resamples."""
    codes = _codes(sources)
    counts = np.bincount(codes)
    # sums of every column over each source, and the source's number of items
    sums = np.stack([np.bincount(codes, weights=column) for column in values.T] + [counts], axis=1)
    rng = np.random.default_rng(seed)
    totals = np.stack([sums[rng.integers(len(sums), size=len(sums))].sum(0) for _ in range(_RESAMPLES)])
    tail = (1 - level) / 2
    return np.quantile(totals[:, :-1] / totals[:, -1:], [tail, 1 - tail], axis=0)


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
    values = np.stack([real, null, np.subtract(real, null)], axis=1).astype(float)
    row = {}
    for label, prefix, mean, (low, high) in zip(
        ("accuracy", "null", "gain"),
        ("", "null_", "gain_"),
        values.mean(0),
        _bootstrap(values, sources, seed).T,
        strict=True,
    ):
        row |= {label: mean, f"{prefix}low": low, f"{prefix}high": high}
    return pd.Series(row)


# --- direction balance ----------------------------------------------------------------------------


def direction_balance(
    captions: Sequence[Sequence[str]], correct: Sequence[int], by: str = "nouns", seed: int = 0
) -> np.ndarray:
    """The largest subset of a pair benchmark in which the right captions balance each other.

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

    Items that do not parse share a code with items of the very same captions.
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
