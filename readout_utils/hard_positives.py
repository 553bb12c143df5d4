"""Hard positives: a score that is right about a caption should be right about the same thing said otherwise.

An item is a picture and three captions: the original c, a hard positive c_p that is as true, and a hard
negative c_n that is not. Metrics follow Kamath et al. 2024, *The Hard Positive Truth about
Vision-Language Compositionality*.
"""

from __future__ import annotations

from collections.abc import Sequence
from functools import lru_cache

import numpy as np
import pandas as pd

from .captions import article, relate, variants
from .deflation import TIE, bootstrap_interval
from .items import Items
from .readouts import Readout
from .scenes import (
    BIG,
    NOUNS,
    QUESTIONS,
    TRAINING_STYLES,
    Scenes,
    described_scenes,
    draw_scenes,
    join_scenes,
    vocabulary,
)

#: What a scorer that draws its scores at random gets.
CHANCE = {"original": 1 / 2, "augmented": 1 / 3, "drop": 1 / 6, "brittleness": 1 / 3}

_RESAMPLES = 2000


# --- metrics --------------------------------------------------------------------------------------


def outcomes(scores: np.ndarray, tie: float = TIE) -> pd.DataFrame:
    """What happens on each item.

    Parameters
    ----------
    scores : (n, 3) scores of the original caption c, the hard positive c_p and the hard negative c_n.
    tie : scores closer than this are tied.

    Returns
    -------
    DataFrame of n rows of 0.0 and 1.0:

    ``original``
        s(c) > s(c_n).
    ``augmented``
        s(c) > s(c_n) and s(c_p) > s(c_n).
    ``drop``
        original - augmented: right about c, and not about c_p.
    ``brittleness``
        s(c) > s(c_n) > s(c_p) or s(c_p) > s(c_n) > s(c): the negative comes between two captions that say the
        same.
    ``ties``
        c or c_p is tied with c_n. A tie is nobody's win: it counts in no inequality above.

    Raises
    ------
    ValueError : scores that are not (n, 3), no item, NaN or infinity.
    """
    scores = np.asarray(scores, dtype=np.float64)
    if scores.ndim != 2 or scores.shape[1] != 3 or not len(scores):
        raise ValueError(
            f"Scores are (n, 3), columns caption, hard positive, hard negative, not {scores.shape}."
        )
    if not np.isfinite(scores).all():
        item = int(np.argwhere(~np.isfinite(scores))[0, 0])
        raise ValueError(f"The scores of item {item} hold NaN or infinity.")
    above, positive_above = (scores[:, :2] - scores[:, 2:] > tie).T
    below, positive_below = (scores[:, :2] - scores[:, 2:] < -tie).T
    original, augmented = above, above & positive_above
    columns = {
        "original": original,
        "augmented": augmented,
        "drop": original & ~augmented,
        "brittleness": (above & positive_below) | (positive_above & below),
        "ties": ~(above | below) | ~(positive_above | positive_below),
    }
    return pd.DataFrame(columns).astype(float)


def summarise(
    scores: np.ndarray, source: Sequence, group: Sequence | None = None, seed: int = 0
) -> pd.DataFrame:
    """Original and augmented accuracy, their difference, brittleness, ties, with 95 % bootstrap intervals.

    Parameters
    ----------
    scores : (n, 3), as for :func:`outcomes`.
    source : (n,) which items belong together; resampling keeps them so. Intervals are paired: that of the
        drop resamples the items' own differences (:func:`readout_utils.deflation.bootstrap_interval`).
    group : (n,) stratum of each item, such as the pattern by which its captions were made.
    seed : of the bootstrap.

    Returns
    -------
    DataFrame indexed by group: a row each group, sorted, then ``micro``, over all items, and ``macro``, the
    mean of the groups, each counting alike (without groups, ``micro`` alone). Columns ``n``; ``original``,
    ``augmented``, ``drop``, ``brittleness``, each with ``_low`` and ``_high``; ``ties``. See :data:`CHANCE`
    for what luck gives. The published set is skewed to one pattern: read both averages.

    Raises
    ------
    ValueError : what :func:`outcomes` refuses, not as many sources or groups as items, a group called
        "micro" or "macro".
    """
    frame, source = outcomes(scores), np.asarray(source)
    n = len(frame)
    for name, values in (("sources", source), ("groups", source if group is None else group)):
        if np.shape(values) != (n,):
            raise ValueError(f"{n} items, but {name} of shape {np.shape(values)}.")
    rows: dict = {}
    if group is not None:
        group = np.asarray(group)
        if taken := {"micro", "macro"} & set(group.tolist()):
            raise ValueError(f"A group cannot be called {min(taken)!r}: that is an average over groups.")
        for name in np.unique(group):
            rows[name] = _row(frame[group == name], source[group == name], seed)
    rows["micro"] = _row(frame, source, seed)
    if group is not None:
        rows["macro"] = _macro_row(frame, source, group, seed)
    return pd.DataFrame.from_dict(rows, orient="index").rename_axis("group").astype({"n": int})


def _row(frame: pd.DataFrame, source: np.ndarray, seed: int) -> dict[str, float]:
    row: dict[str, float] = {"n": len(frame)}
    for metric in CHANCE:
        low, high = bootstrap_interval(frame[metric].to_numpy(), source, seed)
        row |= {metric: frame[metric].mean(), f"{metric}_low": low, f"{metric}_high": high}
    return row | {"ties": frame.ties.mean()}


def _macro_row(frame: pd.DataFrame, source: np.ndarray, group: np.ndarray, seed: int) -> dict[str, float]:
    """Mean over groups. Sources are drawn for all groups at once; a draw's mean is over those it holds."""
    _, source = np.unique(source, return_inverse=True)
    names, group = np.unique(group, return_inverse=True)
    shape = (source.max() + 1, len(names))
    cell = source * shape[1] + group
    rng = np.random.default_rng(seed)
    drawn = rng.multinomial(shape[0], np.full(shape[0], 1 / shape[0]), size=_RESAMPLES).astype(float)

    def sums(values: np.ndarray | None) -> np.ndarray:
        """Resampled sums by group: (resamples, groups)."""
        return drawn @ np.bincount(cell, values, minlength=shape[0] * shape[1]).reshape(shape)

    counts = sums(None)
    counts[counts == 0] = np.nan
    means = frame.groupby(group).mean().mean()
    row: dict[str, float] = {"n": len(frame)}
    for metric in CHANCE:
        low, high = np.quantile(np.nanmean(sums(frame[metric].to_numpy()) / counts, axis=1), [0.025, 0.975])
        row |= {metric: means[metric], f"{metric}_low": low, f"{metric}_high": high}
    return row | {"ties": means.ties}


# --- one picture ----------------------------------------------------------------------------------


def variant_scores(
    encoder, image, caption: str, readouts: Sequence[Readout], replacement: str | None = None
) -> pd.DataFrame:
    """A caption and all its variants, scored on one picture.

    Parameters
    ----------
    encoder : a :class:`readout_utils.encoders.DualEncoder`. Where its vocabulary is closed, variants with words
        outside it are left out.
    image : a picture, see :func:`readout_utils.encoders.to_rgb`.
    replacement : noun for the kind "noun replaced".

    Returns
    -------
    DataFrame of distinct texts, the caption first: text, kind ("caption" for itself), positive, and a column of
    scores each readout, NaN where it does not cover the text.

    Raises
    ------
    readout_utils.captions.CaptionError : a caption that is neither one relation nor a conjunction.
    """
    rows = [
        ("caption", caption, True),
        *((v.kind, v.text, v.positive) for v in variants(caption, replacement)),
    ]
    table = pd.DataFrame(rows, columns=["kind", "text", "positive"]).drop_duplicates(
        "text", ignore_index=True
    )
    if known := getattr(encoder.tokenizer, "words", None):
        table = table[[set(text.split()) <= set(known) for text in table.text]].reset_index(drop=True)
    features = encoder.encode_images([image])
    for readout in readouts:
        covers = getattr(readout, "covers", lambda texts: np.ones(len(texts), dtype=bool))
        fine = np.asarray(covers(table.text.tolist()))
        table[readout.name] = np.nan
        if fine.any():
            texts = table.text[fine].tolist()
            table.loc[fine, readout.name] = readout.score(encoder, features, texts, [0] * len(texts))
    return table


# --- items ----------------------------------------------------------------------------------------

#: The (hard negative, hard positive) of an item: kinds of :func:`readout_utils.captions.variants`. The
#: original is a relation in the first six, a conjunction with sizes in the next two, a bare one in the last.
PATTERNS = (
    *((negative, positive) for negative in ("nouns swapped", "relation flipped", "noun replaced")
      for positive in ("relation paraphrased", "roles inverted")),
    ("attribute bound to the wrong noun", "attribute synonym"),
    ("attribute bound to the wrong noun", "conjunction reordered"),
    ("noun replaced", "conjunction reordered"),
)  # fmt: skip

_NAMES = tuple(NOUNS)


def hard_positive_items(
    axis: str, scenes: Scenes, negative: str, positive: str, name: str = "scenes"
) -> Items:
    """Ask one pattern of captions of every scene of :func:`readout_utils.scenes.described_scenes`.

    Item j is about scene j; its captions are (c, c_p, c_n). In every block of four scenes each item's c is
    another item's c_n and the other way round, also where a noun is replaced. So a scorer that sees only text
    has an original accuracy of exactly 1/2 (where it ties nothing). Its augmented accuracy can be as high as
    1/2, not 1/3: it is as consistent about what is false of the picture as about what is true.

    Parameters
    ----------
    axis, scenes : "left-right" or "above-below", and ``described_scenes`` of this axis.
    negative, positive : one of :data:`PATTERNS`.
    name : of the benchmark.

    Returns
    -------
    Items : three captions each, ``correct`` 0 throughout, ``group`` "positive / negative", ``source`` a block
        of four scenes; ``details`` with columns axis, negative, positive. For :func:`summarise`: the accuracy
        of a three-way choice means nothing where two captions are true.

    Raises
    ------
    ValueError : an unknown pattern or axis, scenes that are no blocks of four.
    """
    blocks = _blocks(axis, scenes)
    return _items(
        [(axis, block, negative, positive, turn) for turn, block in enumerate(blocks)], scenes, name
    )


def scene_hard_positives(
    n: int,
    seed: int,
    *,
    styles=TRAINING_STYLES,
    pairs: str = "training",
    name: str = "scenes/hard-positives",
) -> Items:
    """The hard-positive benchmark of scenes: n pictures, one item each, all patterns on both axes in turn.

    Blocks of four scenes take turns: 72 items hold each pattern once on each axis. In a multiple of 144 the
    bigger thing, and the one ahead, is the first to be named in half of the items of every pattern. See
    :func:`hard_positive_items`, also for asking several patterns of the same scenes.

    Parameters
    ----------
    n : number of items, a multiple of four.
    seed, styles, pairs : see :func:`readout_utils.scenes.described_scenes`.

    Raises
    ------
    ValueError : what ``described_scenes`` refuses.
    """
    if n < 4 or n % 4:
        raise ValueError(f"Ask for a positive multiple of four items, not {n}.")
    axes = tuple(QUESTIONS)
    counts = [-(-n // 4 // 2), n // 4 // 2]  # blocks of each axis: they alternate
    parts = [
        _blocks(axis, described_scenes(axis, 4 * count, [seed, k], styles=styles, pairs=pairs))
        for k, (axis, count) in enumerate(zip(axes, counts, strict=True))
        if count
    ]
    plan = []
    for j in range(n // 4):
        turn, cell = divmod(j, 2 * len(PATTERNS))
        plan.append((axes[j % 2], parts[j % 2][j // 2], *PATTERNS[cell % len(PATTERNS)], turn))
    return _items(plan, join_scenes([block for _, block, *_ in plan]), name)


def _blocks(axis: str, scenes: Scenes) -> list[Scenes]:
    """The blocks of four that :func:`described_scenes` draws; others are refused."""
    if axis not in QUESTIONS:
        raise ValueError(f"Unknown axis {axis!r}; there are {', '.join(QUESTIONS)}.")
    message = f"These scenes are no {axis} blocks of four; make them with described_scenes({axis!r}, ...)."
    if not len(scenes) or len(scenes) % 4 or scenes.noun.shape[1] != 2 or (scenes.noun < 0).any():
        raise ValueError(message)
    noun = scenes.noun.reshape(-1, 4, 2)
    same = noun[:, 0] == noun[:, 2]
    alike = (noun[:, 0] == noun[:, 1]) & (noun[:, 2] == noun[:, 3])
    ahead, big = (v.reshape(-1, 4) for v in (_ahead(axis, scenes), _big(scenes)))
    if not (
        alike.all()
        and (same.sum(1) == 1).all()
        and (ahead == [0, 1, 0, 1]).all()
        and (big == [0, 1, 1, 0]).all()
    ):
        raise ValueError(message)
    return [scenes[start : start + 4] for start in range(0, len(scenes), 4)]


def _ahead(axis: str, scenes: Scenes) -> np.ndarray:
    """Column (B,) of the sticker to the left, or above; -1 where the two overlap along the axis."""
    along = scenes.x if axis == "left-right" else scenes.y
    low = along - scenes.size // 2
    high = low + scenes.size
    return np.select([high[:, 0] <= low[:, 1], high[:, 1] <= low[:, 0]], [0, 1], -1)


def _big(scenes: Scenes) -> np.ndarray:
    """Column (B,) of the big sticker; -1 where both are big or both small."""
    big = scenes.size >= BIG
    return np.where(big.sum(1) == 1, big.argmax(1), -1)


def _items(plan: Sequence[tuple[str, Scenes, str, str, int]], scenes: Scenes, name: str) -> Items:
    """Items of blocks, each with its axis, pattern and turn; ``scenes`` are those of all blocks."""
    captions, details = [], []
    for axis, block, negative, positive, turn in plan:
        captions += _block_captions(axis, block, negative, positive, turn)
        details += [{"axis": axis, "negative": negative, "positive": positive}] * 4
    frame, n = pd.DataFrame(details), len(captions)
    return Items(
        name=name,
        images=draw_scenes(scenes),
        image=np.arange(n),
        captions=tuple(captions),
        correct=np.zeros(n, dtype=int),
        group=(frame.positive + " / " + frame.negative).to_numpy(str),
        source=np.arange(n) // 4,
        scenes=scenes,
        details=frame,
    )


def _block_captions(
    axis: str, block: Scenes, negative: str, positive: str, turn: int
) -> list[tuple[str, str, str]]:
    """(c, c_p, c_n) of the four scenes of a block; ``turn`` varies what the pattern leaves open."""
    if (negative, positive) not in PATTERNS:
        known = "; ".join(f"{n!r}, {p!r}" for n, p in PATTERNS)
        raise ValueError(f"No pattern {negative!r}, {positive!r} (negative, positive). There are {known}.")
    ahead = _ahead(axis, block)
    own = int(np.flatnonzero(block.noun[0] != block.noun[2])[0])  # the column that holds no shared noun
    one, other = (_NAMES[block.noun[scene, own]] for scene in (0, 2))
    replacement = {one: other, other: one}.get if negative == "noun replaced" else None
    rows = []
    for scene in range(4):
        # Which column is named first: such that c_n is the c of another scene of the block.
        if negative == "noun replaced":
            first = (own + turn) % 2
        elif negative == "nouns swapped":
            first = (ahead[scene] + scene // 2 + turn) % 2
        else:
            first = (scene // 2 + turn) % 2
        order = [first, 1 - first]
        names = [_NAMES[noun] for noun in block.noun[scene, order]]
        if positive in ("relation paraphrased", "roles inverted"):
            caption = relate(names[0], QUESTIONS[axis][int(ahead[scene] != first)], names[1])
        else:
            if negative == "attribute bound to the wrong noun":
                sizes = ("big" if size >= BIG else "small" for size in block.size[scene, order])
                names = [f"{size} {noun}" for size, noun in zip(sizes, names, strict=True)]
            caption = " and ".join(map(article, names))
        made = [v for v in variants(caption, replacement) if set(v.text.split()) <= _vocabulary()]
        others = [[v.text for v in made if v.kind == kind] for kind in (positive, negative)]
        rows.append((caption, *(texts[turn % len(texts)] for texts in others)))
    return rows


@lru_cache(maxsize=1)
def _vocabulary() -> frozenset[str]:
    """Words a pocket encoder knows; some synonyms of relations hold others."""
    return frozenset(vocabulary())
