"""Readouts times benchmark: every item scored on its own image and on a null one, and tables made of that.

:func:`evaluate` gives the table. It is :func:`per_item`, one row an item and readout, then :func:`summarise`;
the other functions here read the same rows another way. Pictures stream through: each distinct one is
encoded once, scored against every caption that any item or null puts to it by every readout, and let go.
"""

from __future__ import annotations

import hashlib
import json
import pickle
from collections.abc import Iterator, Sequence
from pathlib import Path
from types import SimpleNamespace

import numpy as np
import open_clip
import pandas as pd
import torch
from scipy.sparse import block_array, coo_array
from scipy.sparse.csgraph import connected_components
from tqdm import tqdm

from . import __version__
from .deflation import (
    TIE,
    bootstrap_interval,
    credit,
    derangement,
    direction_balance,
    grounded_gain,
    oracle_threshold,
    random_derangements,
    same_offer,
    statement_credit,
)
from .encoders import DualEncoder, ImageFeatures, to_rgb
from .items import Items, PictureFiles
from .readouts import Readout, TextPrior

#: Pictures whose features are held at a time.
CHUNK = 512

Features = ImageFeatures | list[tuple[np.ndarray, ImageFeatures]]


# --- features -------------------------------------------------------------------------------------


class _TextsOnce:
    """An encoder whose texts are encoded once, however many chunks of pictures ask for them."""

    def __init__(self, encoder: DualEncoder | None):
        self._encoder, self._known = encoder, {}

    def __getattr__(self, name):
        return getattr(self._encoder, name)

    def encode_texts(self, texts: Sequence[str]) -> torch.Tensor:
        """See :meth:`readout_utils.encoders.DualEncoder.encode_texts`."""
        if self._encoder is None:
            raise ValueError("A readout wants to encode texts: pass the encoder.")
        if isinstance(texts, str) or not len(texts):
            return self._encoder.encode_texts(texts)
        if new := [text for text in dict.fromkeys(texts) if text not in self._known]:
            self._known |= dict(zip(new, self._encoder.encode_texts(new), strict=True))
        return torch.stack([self._known[text] for text in texts])


def _encode(
    encoder: DualEncoder, benchmark: Items, members: Sequence[int]
) -> list[tuple[np.ndarray, ImageFeatures]]:
    """Features of some of a benchmark's pictures, each opened once: (indices, features) for each grid.

    At most a batch of each size is held unencoded.
    """
    waiting: dict[tuple, tuple[list[int], list]] = {}
    done: dict[tuple, tuple[list[int], list[ImageFeatures]]] = {}

    def encode(size):
        indices, pictures = waiting.pop(size)
        already, features = done.setdefault(size, ([], []))
        already += indices
        features.append(encoder.encode_images(pictures))

    for index in members:
        try:
            picture = to_rgb(benchmark.images[index])
            size = encoder.size_of(picture.size)
        except (ValueError, FileNotFoundError) as error:
            asking = np.flatnonzero(benchmark.image == index)
            where = benchmark.where(asking[0]) if len(asking) else f"image {index}, which no item asks about"
            raise type(error)(f"{benchmark.name}, {where}: {error}") from error
        indices, pictures = waiting.setdefault(size, ([], []))
        indices.append(index)
        pictures.append(picture)
        if len(pictures) == encoder.batch_size:
            encode(size)
    for size in list(waiting):
        encode(size)
    return [(np.array(indices), ImageFeatures.join(features)) for indices, features in done.values()]


def encode_benchmark(encoder: DualEncoder, benchmark: Items) -> list[tuple[np.ndarray, ImageFeatures]]:
    """Features of all of a benchmark's images, to hand to several calls.

    Returns
    -------
    (indices of images, their features) for each size of picture.

    Raises
    ------
    FileNotFoundError, ValueError : a picture that is missing or does not open; its item is named.
    """
    return _encode(encoder, benchmark, range(len(benchmark.images)))


def _as_parts(features: Features, benchmark: Items) -> list[tuple[np.ndarray, ImageFeatures]]:
    """Features as (indices, features) for each grid; refused unless they are each image's, once."""
    if isinstance(features, ImageFeatures):
        features = [(np.arange(len(features)), features)]
    parts = [(np.asarray(members, dtype=int), part) for members, part in features]
    count = sum(len(part) for _, part in parts)
    given = np.sort(np.concatenate([members for members, _ in parts]))
    if count != len(benchmark.images) or not np.array_equal(given, np.arange(len(benchmark.images))):
        raise ValueError(f"Features of {count} images for the {len(benchmark.images)} of {benchmark.name}.")
    return parts


# --- scores ---------------------------------------------------------------------------------------


def _sees_image(readout: Readout) -> bool:
    return getattr(readout, "sees_image", True)


def _covered(readout: Readout, benchmark: Items) -> np.ndarray:
    """Which captions (n, k) a readout takes; all of them if it does not say."""
    shape = (len(benchmark), len(benchmark.captions[0]))
    if not hasattr(readout, "covers"):
        return np.ones(shape, dtype=bool)
    flat = [caption for options in benchmark.captions for caption in options]
    covers = np.asarray(readout.covers(flat), dtype=bool)
    if covers.shape != (len(flat),):
        raise ValueError(f"{readout.name}.covers returned shape {covers.shape} for {len(flat)} captions.")
    return covers.reshape(shape)


def _score_rows(encoder, benchmark: Items, readout: Readout, features, rows, image, covered) -> np.ndarray:
    """Scores (rows, k) of items ``rows`` on ``features[image]``; a caption that is not covered scores 0."""
    scores = np.zeros((len(rows), covered.shape[1]))
    row, column = np.nonzero(covered[rows])
    if not len(row):
        return scores
    captions = [benchmark.captions[rows[r]][c] for r, c in zip(row, column, strict=True)]
    where = None if image is None else image[row]
    got = np.asarray(readout.score(encoder, features, captions, where), dtype=np.float64)
    if got.shape != (len(captions),):
        raise ValueError(f"{readout.name} returned shape {got.shape} for {len(captions)} captions.")
    if not np.isfinite(got).all():
        first = int(np.flatnonzero(~np.isfinite(got))[0])
        raise ValueError(
            f"{readout.name} scored {captions[first]!r} ({benchmark.where(rows[row[first]])}) as {got[first]}."
        )
    scores[row, column] = got
    return scores


def _score_pairs(encoder, benchmark: Items, readout: Readout, parts, rows, image, covered) -> np.ndarray:
    """Scores (pairs, k) of items ``rows`` on pictures ``image``, whose features lie in parts."""
    scores = np.full((len(rows), covered.shape[1]), np.nan)
    for members, features in parts:
        place = np.full(len(benchmark.images), -1)
        place[members] = np.arange(len(members))
        here = np.flatnonzero(place[image] >= 0)
        if len(here):
            where = place[image[here]]
            scores[here] = _score_rows(encoder, benchmark, readout, features, rows[here], where, covered)
    return scores


def score_items(
    encoder: DualEncoder | None,
    benchmark: Items,
    readout: Readout,
    features: Features | None,
    image: np.ndarray | None = None,
) -> np.ndarray:
    """Scores (n, k) of every caption of every item, on the items' own images or on ``image``'s.

    A caption that the readout does not cover scores 0.

    Raises
    ------
    ValueError : features or indices of other images, a score of the wrong shape, NaN or infinity (the caption and
        the item are named).
    """
    rows, covered = np.arange(len(benchmark)), _covered(readout, benchmark)
    if not _sees_image(readout):
        return _score_rows(encoder, benchmark, readout, None, rows, None, covered)
    image = benchmark.image if image is None else np.asarray(image)
    if image.shape != rows.shape or image.min() < 0 or image.max() >= len(benchmark.images):
        raise ValueError(
            f"image holds one index below {len(benchmark.images)} for each of the {len(rows)} items."
        )
    return _score_pairs(encoder, benchmark, readout, _as_parts(features, benchmark), rows, image, covered)


def _partners(benchmark: Items, derangements: int | None, offset: int | None, seed: int) -> np.ndarray:
    """Null partners (passes, n): the published assignment, or several random ones."""
    if derangements is None:
        offset = benchmark.null_offset if offset is None else offset
        return derangement(benchmark.source, offset, benchmark.null_group)[None]
    return random_derangements(benchmark.source, derangements, seed, benchmark.null_group)


def _weights_hash(encoder) -> str:
    """The first half of the SHA-256 of an encoder's weights; "none" where there is no model."""
    if getattr(encoder, "model", None) is None:
        return "none"
    digest = hashlib.sha256()
    for name, value in encoder.model.state_dict().items():
        digest.update(name.encode())
        digest.update(value.detach().cpu().contiguous().flatten().view(torch.uint8).numpy())
    return digest.hexdigest()[:32]


def _pictures_hash(images: Sequence) -> str:
    """A hash of pictures; of files by path, box, size and time of change."""
    digest = hashlib.sha256()
    if isinstance(images, np.ndarray):
        digest.update(np.ascontiguousarray(images))
    elif isinstance(images, PictureFiles):
        for path, box in zip(images.paths, images.boxes, strict=True):
            there = path.stat() if path.is_file() else None
            digest.update(repr((str(path), box, there and (there.st_size, there.st_mtime_ns))).encode())
    else:
        for image in images:
            digest.update(np.asarray(to_rgb(image)))
    return digest.hexdigest()


def _fingerprint(encoder, weights, benchmark: Items, readouts, partners, features, chunk: int) -> str:
    """What a kept run must agree in, to be continued: captions, pictures, encoder, readouts, nulls."""
    settings = {
        name: getattr(encoder, name, None)
        for name in ("name", "resolution", "patch_features", "pooled_view", "halves")
    }
    digest = hashlib.sha256(
        json.dumps(
            [
                __version__,
                benchmark.captions,
                benchmark.image.tolist(),
                settings,
                weights,
                chunk,
                partners.tolist(),
            ]
        ).encode()
    )
    digest.update(_pictures_hash(benchmark.images).encode())
    for members, part in features or []:
        for array in (members, part.pooled, part.patches, part.halves):
            digest.update(b"none" if array is None else np.ascontiguousarray(array))
    for readout in readouts:
        try:
            digest.update(
                f"{readout.name} {type(readout).__qualname__}".encode() + pickle.dumps(vars(readout))
            )
        except Exception as error:
            raise ValueError(
                f"{readout.name} cannot be told apart from others of its name ({error}): keep= needs readouts whose "
                "attributes can be pickled."
            ) from error
    return digest.hexdigest()


def _open_keep(keep: str | Path, fingerprint: str) -> Path:
    keep = Path(keep)
    keep.mkdir(parents=True, exist_ok=True)
    record = keep / "run.txt"
    if record.is_file() and record.read_text() != fingerprint:
        raise ValueError(
            f"{keep} holds a run of another benchmark, encoder, readout, null or version; name another folder, or "
            "remove it."
        )
    record.write_text(fingerprint)
    return keep


def _stream(
    encoder,
    benchmark: Items,
    readouts,
    features,
    pairs: tuple[np.ndarray, np.ndarray],
    covered,
    keep,
    chunk,
    progress,
) -> Iterator[tuple[np.ndarray, np.ndarray]]:
    """(item, picture) pairs, chunk of pictures by chunk: their indices and scores (readouts, pairs, k)."""
    rows, image = pairs
    used = np.unique(image)
    texts = _TextsOnce(encoder)
    # shows itself only where the work takes long
    bar = tqdm(
        range(0, len(used), chunk), desc=benchmark.name, unit="chunk", delay=0 if progress else 30, disable=progress is False
    )  # fmt: skip
    for start in bar:
        members = used[start : start + chunk]
        now = np.flatnonzero((image >= members[0]) & (image <= members[-1]))
        file = keep / f"chunk-{start // chunk:05d}.npz" if keep else None
        if file and file.is_file():
            with np.load(file) as kept:
                yield now, kept["scores"]
            continue
        if features is None:
            parts = _encode(encoder, benchmark, members)
        else:
            parts = [
                (indices[inside], part[np.flatnonzero(inside)])
                for indices, part in features
                if (inside := np.isin(indices, members)).any()
            ]
        scores = np.stack(
            [
                _score_pairs(texts, benchmark, readout, parts, rows[now], image[now], covers)
                for readout, covers in zip(readouts, covered, strict=True)
            ]
        )
        if file:
            partial = file.with_suffix(".partial.npz")
            np.savez(partial, scores=scores)
            partial.replace(file)  # an interruption never leaves half a chunk
        yield now, scores


def per_item(
    encoder: DualEncoder | None,
    benchmark: Items,
    readouts: Sequence[Readout],
    *,
    features: Features | None = None,
    derangements: int | None = None,
    offset: int | None = None,
    seed: int = 0,
    keep: str | Path | None = None,
    chunk: int = CHUNK,
    progress: bool | None = None,
) -> pd.DataFrame:
    """What every readout made of every item, on its own image and on null images.

    Parameters
    ----------
    encoder : may be None where no readout asks for it.
    readouts : see :class:`readout_utils.readouts.Readout`. One with a method ``covers(captions)`` scores only the
        captions for which it says True; one with ``sees_image = False`` gets no features; one with
        ``signed = True`` has a zero that means "neither", and judges statements by its sign.
    features : of ``benchmark.images``, from ``encode_images`` or :func:`encode_benchmark`, if at hand. Otherwise
        pictures are opened, encoded, scored and let go, and memory does not grow with their number.
    derangements : None for the published null; a number for the mean over so many random derangements.
    offset : of the published null, if not the benchmark's own.
    seed : of the random derangements.
    keep : a folder in which the scores of each chunk are kept. A run that was interrupted, or that ended in an
        error, continues from what is there.
    chunk : pictures whose features are held at a time; changes no result.
    progress : True for a progress bar, False for none; by default one appears after half a minute.

    Returns
    -------
    DataFrame, one row a readout and item:

    ``readout, item, source, group``
        which; ``item`` counts from 0.
    ``covered``
        whether the readout takes all of the item's captions.
    ``scored``
        whether the item counts: pairs always do (a caption not covered scores 0), among more captions and for
        statements only covered items do, as published.
    ``rule``
        ``choice``; for statements ``sign``, or ``oracle threshold`` (optimistic, fitted on the labels).
    ``credit, null_credit``
        on its own image; on the null partner's, or the mean over the derangements.
    ``margin, null_margin``
        the right caption's score less the best wrong one's (for statements, the score's distance from the
        threshold, positive on the right side); of the null the first derangement's.
    ``above_null``
        share of all items' null margins that lie below the margin, ties half: its mean is the AUROC.
    ``confidence``
        the winner's lead (for statements the distance from the threshold): what selection goes by.

    ``attrs`` say which encoder, benchmark, versions and null made the rows.

    Raises
    ------
    ValueError, FileNotFoundError : no readouts, two of one name, no encoder where one is needed, features of other
        images, a score of the wrong shape or not finite, a picture that is missing or does not open, a ``keep``
        of another run.
    """
    if not len(readouts):
        raise ValueError("Name at least one readout.")
    names = [readout.name for readout in readouts]
    if twice := {name for name in names if names.count(name) > 1}:
        raise ValueError(f"Two readouts are called {twice.pop()!r}; give one another name.")
    if chunk < 1:
        raise ValueError(f"A chunk is at least one picture, not {chunk}.")
    looking = [index for index, readout in enumerate(readouts) if _sees_image(readout)]
    if looking and encoder is None and features is None:
        raise ValueError(f"{names[looking[0]]} looks at pictures: pass an encoder.")
    n, k = len(benchmark), len(benchmark.captions[0])
    partners = _partners(benchmark, derangements, offset, seed)
    # the distinct (item, picture) pairs of all passes, and which of them each pass asks for
    asked = np.concatenate([benchmark.image[None], benchmark.image[partners]])
    codes, which = np.unique(np.arange(n) * len(benchmark.images) + asked, return_inverse=True)
    pairs = np.divmod(codes, len(benchmark.images))
    covered = [_covered(readout, benchmark) for readout in readouts]
    weights = _weights_hash(encoder)
    scores = np.full((len(readouts), len(codes), k), np.nan)
    if looking:
        seeing = [readouts[index] for index in looking]
        features = None if features is None else _as_parts(features, benchmark)
        if keep is not None:
            keep = _open_keep(
                keep, _fingerprint(encoder, weights, benchmark, seeing, partners, features, int(chunk))
            )
        covers = [covered[index] for index in looking]
        for now, got in _stream(
            encoder, benchmark, seeing, features, pairs, covers, keep, int(chunk), progress
        ):
            scores[np.ix_(looking, now)] = got
    for index in set(range(len(readouts))) - set(looking):  # the same on any picture
        scores[index] = score_items(encoder, benchmark, readouts[index], None)[pairs[0]]
    frame = pd.concat(
        [
            _rows(benchmark, readout, own[which.reshape(asked.shape)], covers.all(1))
            for readout, own, covers in zip(readouts, scores, covered, strict=True)
        ],
        ignore_index=True,
    )
    frame.attrs = {
        "benchmark": benchmark.name,
        "items": n,
        "encoder": getattr(encoder, "name", "none"),
        "weights": weights,
        "null": f"published, offset {benchmark.null_offset if offset is None else offset}"
        if derangements is None
        else f"{derangements} random derangements, seed {seed}",
        "versions": f"readout_utils {__version__}, torch {torch.__version__}, open_clip {open_clip.__version__}",
    }
    return frame


def _rows(benchmark: Items, readout: Readout, scores: np.ndarray, covered: np.ndarray) -> pd.DataFrame:
    """One readout's rows from its scores (1 + passes, n, k), the own image first."""
    n, k = scores.shape[1:]
    scored = covered | (k == 2)
    credits, margins, leads = (np.zeros((len(scores), n)) for _ in range(3))
    rule = "choice"
    if benchmark.statements:
        signed = getattr(readout, "signed", False)
        rule = "sign" if signed else "oracle threshold"
        for index, column in enumerate(scores[:, scored, 0] if scored.any() else []):
            truth = benchmark.correct[scored]
            threshold = 0.0 if signed else oracle_threshold(column, truth)
            credits[index, scored] = statement_credit(column, truth, threshold)
            margins[index, scored] = (column - threshold) * np.where(truth == 1, 1, -1)
            leads[index, scored] = np.abs(column - threshold)
    else:
        right = benchmark.right
        for index, table in enumerate(scores):
            credits[index] = credit(table, benchmark.correct)
            margins[index] = table[right] - np.where(right, -np.inf, table).max(1)
            ordered = np.sort(table, axis=1)
            leads[index] = ordered[:, -1] - ordered[:, -2]
    above = np.zeros(n)
    if scored.any():
        null = np.sort(margins[1:, scored].ravel())
        own = margins[0, scored]
        below = np.searchsorted(null, own - TIE, "left"), np.searchsorted(null, own + TIE, "right")
        above[scored] = (below[0] + below[1]) / (2 * len(null))
    return pd.DataFrame(
        {
            "readout": readout.name,
            "item": np.arange(n),
            "source": benchmark.source,
            "group": benchmark.group,
            "covered": covered,
            "scored": scored,
            "rule": rule,
            "credit": credits[0],
            "null_credit": credits[1:].mean(0),
            "margin": margins[0],
            "null_margin": margins[1],
            "above_null": above,
            "confidence": leads[0],
        }
    )


# --- tables ---------------------------------------------------------------------------------------


def summarise(
    items: pd.DataFrame, by: str | None = None, seed: int = 0, selected: float = 0.3
) -> pd.DataFrame:
    """The table of :func:`evaluate` from the rows of :func:`per_item`.

    Parameters
    ----------
    items : rows of one or more readouts.
    by : None, or ``"group"`` for a row each stratum.
    seed : of the bootstrap.
    selected : share of the items, the most confident ones, of which ``selective`` is the accuracy.

    Returns
    -------
    DataFrame indexed by readout (and group):

    ``n, coverage``
        items scored; share of all items that the readout covers.
    ``accuracy, low, high, null, null_low, null_high, gain, gain_low, gain_high``
        micro averages over items, see :func:`readout_utils.deflation.grounded_gain`.
    ``auroc``
        of the right caption's margin on its own image against the null margins of all items. Li et al. 2026
        are reported with an "AUROC under the derangement null" without a formula: this is our reading of it.
    ``selective``
        accuracy among the most confident 30 % of the items (``selected``), see :func:`risk_coverage`.
    ``macro, macro_gain``
        means over groups of the groups' accuracy and gain, each group counting alike (without ``by``).
    ``rule``
        how items were judged. ``oracle threshold`` is optimistic.

    A readout that scores no item has n = 0 and no numbers.
    """
    if not 0 < selected <= 1:
        raise ValueError(f"selected is a share of the items, above 0 and up to 1, not {selected}.")
    keys = ["readout"] if by is None else ["readout", by]
    table = {}
    for key, rows in items.groupby(keys, sort=False):
        scored = rows[rows.scored]
        row: dict = {"n": len(scored), "coverage": rows.covered.mean()}
        if len(scored):
            row |= grounded_gain(
                scored.credit.to_numpy(), scored.null_credit.to_numpy(), scored.source.to_numpy(), seed
            )
            row["auroc"] = scored.above_null.mean()
            row["selective"] = _selective(scored.confidence, scored.credit, selected)
            if by is None:
                groups = scored.groupby("group")[["credit", "null_credit"]].mean()
                row |= {
                    "macro": groups.credit.mean(),
                    "macro_gain": (groups.credit - groups.null_credit).mean(),
                }
        row["rule"] = rows.rule.iloc[0]
        table[key if by else key[0]] = row
    frame = pd.DataFrame.from_dict(table, orient="index")
    frame.index = pd.MultiIndex.from_tuples(table, names=keys) if by else frame.index.rename("readout")
    frame.attrs = dict(items.attrs)
    return frame


def evaluate(
    encoder: DualEncoder | None, benchmark: Items, readouts: Sequence[Readout], *, seed: int = 0, **options
) -> pd.DataFrame:
    """Accuracy, null and grounded gain of readouts on a benchmark, one row a readout.

    The null scores each item's captions on another item's image; nothing is encoded twice for it.

    Parameters
    ----------
    seed : of the bootstrap, and of random derangements.
    options : ``features``, ``derangements``, ``offset``, ``keep``, ``chunk``, ``progress``: see :func:`per_item`.

    Returns
    -------
    DataFrame, see :func:`summarise`.
    """
    return summarise(per_item(encoder, benchmark, readouts, seed=seed, **options), seed=seed)


def _kept_credit(confidence, values) -> np.ndarray:
    """Sum of credit among the m most confident items, m = 1..n; equally confident ones in the mean order."""
    confidence, values = np.asarray(confidence), np.asarray(values, dtype=np.float64)
    order = np.argsort(-confidence, kind="stable")
    confidence, values = confidence[order], values[order]
    run = np.cumsum(np.r_[True, np.diff(confidence) < -TIE]) - 1  # equally confident items share a number
    return np.cumsum((np.bincount(run, values) / np.bincount(run))[run])


def _selective(confidence, values, share: float) -> float:
    count = max(1, round(share * len(values)))
    return float(_kept_credit(confidence, values)[count - 1] / count)


def risk_coverage(items: pd.DataFrame, null: bool = False) -> pd.DataFrame:
    """Accuracy among the most confident items, for every share of them.

    Equally confident items are taken in random order: the curve is the mean over all such orders, and does
    not depend on the order of the items.

    Parameters
    ----------
    items : rows of :func:`per_item`.
    null : judge the kept items on their null images instead.

    Returns
    -------
    DataFrame : readout, share (of the scored items that is kept), accuracy; one row each number of items.
    """
    curves = [pd.DataFrame({"readout": [], "share": [], "accuracy": []})]
    for name, rows in items[items.scored].groupby("readout", sort=False):
        kept = _kept_credit(rows.confidence, rows.null_credit if null else rows.credit)
        count = np.arange(1, len(kept) + 1)
        curves.append(pd.DataFrame({"readout": name, "share": count / len(kept), "accuracy": kept / count}))
    return pd.concat(curves[1:] or curves, ignore_index=True)


def compare(one: pd.DataFrame, other: pd.DataFrame, seed: int = 0) -> pd.Series:
    """Two readouts (or two encoders) item by item, on the items that both score.

    Parameters
    ----------
    one, other : rows of a single readout each, from :func:`per_item` on the same benchmark.

    Returns
    -------
    Series : n, accuracy of both (``one``, ``other``), their difference with its paired interval over sources
    (``difference``, ``low``, ``high``), and how many items only one of them gets right (``only_one``, ``only_other``).

    Raises
    ------
    ValueError : rows of several readouts, or of different items.
    """
    for rows in (one, other):
        if rows.readout.nunique() != 1:
            raise ValueError(f"Compare the rows of one readout each, not of {sorted(rows.readout.unique())}.")
    both = one.merge(other, on="item", suffixes=("", "_other"), validate="one_to_one")
    different = len(both) != len(one) or len(one) != len(other)
    for column in ("source", "group"):
        different = different or (both[column] != both[f"{column}_other"]).any()
    if different or one.attrs.get("benchmark") != other.attrs.get("benchmark"):
        raise ValueError("The rows are of different items: evaluate both on the same benchmark.")
    both = both[both.scored & both.scored_other]
    if both.empty:
        raise ValueError("There is no item that both score.")
    difference = (both.credit - both.credit_other).to_numpy()
    low, high = bootstrap_interval(difference, both.source.to_numpy(), seed)
    return pd.Series(
        {
            "n": len(both),
            "one": both.credit.mean(),
            "other": both.credit_other.mean(),
            "difference": difference.mean(),
            "low": low,
            "high": high,
            "only_one": int((both.credit > both.credit_other).sum()),
            "only_other": int((both.credit < both.credit_other).sum()),
        }
    )


def save_items(items: pd.DataFrame, path: str | Path) -> None:
    """Write rows of :func:`per_item` as parquet, with the encoder, versions and null that made them.

    Raises
    ------
    ImportError : pyarrow is not installed; the message says how.
    """
    Path(path).parent.mkdir(parents=True, exist_ok=True)
    items.to_parquet(path, index=False)


def load_items(path: str | Path) -> pd.DataFrame:
    """Read what :func:`save_items` wrote; ``attrs`` say what made it.

    Raises
    ------
    FileNotFoundError : no such file.
    """
    if not Path(path).is_file():
        raise FileNotFoundError(f"No kept items at {path}.")
    return pd.read_parquet(path)


# --- without the picture --------------------------------------------------------------------------


def text_only(
    benchmark: Items,
    *,
    folds: int = 5,
    seed: int = 0,
    together: Sequence | None = None,
    balance: str | None = None,
) -> pd.DataFrame:
    """What captions alone give away: a trained scorer of text, cross-validated over sources.

    For each fold of the sources a :class:`readout_utils.readouts.TextPrior` is trained on the other folds' items
    and scores this one's. No picture is opened. The first thing to look at in any benchmark.

    Parameters
    ----------
    together : (n,) codes of items that stay in one fold besides those of one source; by default those with the
        same captions. Where a benchmark is balanced they must: a prior trained on the one item would expect the
        other to be the same, and it is the opposite, so that the text would seem to tell less than nothing.
    balance : also balance what a prior is trained on, see :func:`readout_utils.deflation.direction_balance`; for
        the same reason.

    Returns
    -------
    DataFrame : rows as :func:`per_item`'s, readout "text only"; its null is its accuracy, its gain 0.
    ``attrs["largest_fold"]`` is the largest fold's share of the items: well above 1 / folds where many items hang
    together, and the prior then learns from few.

    Raises
    ------
    ValueError : fewer sources (or things kept together) than folds; a fold whose training captions are all right.
    """
    if together is None:
        together = [
            "|".join(sorted(caption.lower() for caption in options)) for options in benchmark.captions
        ]
    _, source = np.unique(benchmark.source, return_inverse=True)
    _, code = np.unique(np.asarray(together), return_inverse=True)
    # sources that share a code, and codes that share a source, are one
    links = coo_array((np.ones(len(code)), (source, code)), shape=(source.max() + 1, code.max() + 1))
    component = connected_components(block_array([[None, links], [links.T, None]]))[1][source]
    parts, part, sizes = np.unique(component, return_inverse=True, return_counts=True)
    if not 2 <= folds <= len(parts):
        raise ValueError(
            f"{folds} folds need as many sources that share no captions; {benchmark.name} has {len(parts)}."
        )
    fold_of, filled = np.empty(len(parts), dtype=int), np.zeros(folds)
    order = np.random.default_rng(seed).permutation(len(parts))
    for index in order[
        np.argsort(-sizes[order], kind="stable")
    ]:  # the largest first, each to the emptiest fold
        fold_of[index] = filled.argmin()
        filled[fold_of[index]] += sizes[index]
    fold = fold_of[part]
    scores = np.empty((len(benchmark), len(benchmark.captions[0])))
    for number in range(folds):
        inside = fold == number
        training = benchmark.select(~inside)
        if balance is not None:
            training = training.select(direction_balance(training.captions, training.correct, balance, seed))
        scores[inside] = score_items(None, benchmark.select(inside), TextPrior(training), None)
    prior = SimpleNamespace(name="text only", signed=True)
    frame = _rows(benchmark, prior, np.stack([scores, scores]), np.ones(len(benchmark), dtype=bool))
    frame.attrs = {
        "benchmark": benchmark.name,
        "items": len(benchmark),
        "encoder": "none",
        "null": "none needed",
        "largest_fold": float(filled.max() / len(benchmark)),
        "versions": f"readout_utils {__version__}",
    }
    return frame


def balance_certificate(
    encoder: DualEncoder | None,
    benchmark: Items,
    readouts: Sequence[Readout] = (),
    *,
    by: str = "nouns",
    seed: int = 0,
    keep: str | Path | None = None,
    **options,
) -> pd.DataFrame:
    """A pair benchmark and its direction-balanced part, each with the nulls that show what its text gives away.

    Parameters
    ----------
    by : see :func:`readout_utils.deflation.direction_balance`.
    keep, options : as for :func:`per_item`, without ``features``; the two parts are kept in folders of their own.

    Returns
    -------
    DataFrame indexed by (items, readout), items "all" and "balanced": n, null, null_low, null_high. The null
    of "text only" is its cross-validated accuracy. The balanced part is certified where every interval
    holds one half.

    Raises
    ------
    ValueError : nothing is left after balancing, no pairs.
    """
    kept = direction_balance(benchmark.captions, benchmark.correct, by, seed)
    if not len(kept):
        raise ValueError(f"No two items of {benchmark.name} balance each other by {by!r}.")
    tables = {}
    for label, part in (("all", benchmark), ("balanced", benchmark.select(kept))):
        together = None if by == "relation" else same_offer(part.captions, by)
        balance = by if label == "balanced" else None
        frames = [text_only(part, seed=seed, together=together, balance=balance)]
        if len(readouts):
            kept_in = None if keep is None else Path(keep) / label
            frames.append(per_item(encoder, part, readouts, seed=seed, keep=kept_in, **options))
        tables[label] = summarise(pd.concat(frames, ignore_index=True), seed=seed)
    return pd.concat(tables, names=["items"])[["n", "null", "null_low", "null_high"]]
