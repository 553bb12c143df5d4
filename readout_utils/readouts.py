"""Readouts: ways to turn frozen features into the score of an image and a caption.

A readout has a ``name`` and one method, ``score(encoder, features, captions, image)``, which returns
one number a caption. It sees image features and captions, never which caption is right.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Protocol

import numpy as np
import torch
from sklearn.feature_extraction.text import CountVectorizer
from sklearn.linear_model import LogisticRegression, Ridge
from sklearn.pipeline import make_pipeline

from .alignment import TEMPERATURE, VARIANTS, centroids, similarity, weights
from .captions import CaptionError, content_words, noun_phrases, orbit, parse_relation, parse_relations
from .encoders import DualEncoder, ImageFeatures
from .scenes import NOUNS, Scenes, coverage, draw_scenes, noun_index
from .symmetry import direction

_NUMBERS = 2**24  # patch features aligned at a time: bounds the memory, changes no result


class Readout(Protocol):
    """What :func:`readout_utils.evaluation.evaluate` asks of a readout.

    A readout may also have ``covers(captions)``, which says of each caption whether it is scored;
    ``signed = True`` where a score of zero means "neither", so that statements are judged by the sign; and
    ``sees_image = False`` where it looks at captions alone (it then gets no features).
    """

    name: str

    def score(
        self,
        encoder: DualEncoder,
        features: ImageFeatures,
        captions: Sequence[str],
        image: Sequence[int] | None = None,
    ) -> np.ndarray:
        """Scores (n,) float64 of n captions, caption j on the image ``features[image[j]]``."""
        ...


def _image_index(features: ImageFeatures, captions: Sequence[str], image) -> torch.Tensor:
    if isinstance(captions, str):
        raise ValueError(f"captions is a list of texts; write [{captions!r}].")
    if len(captions) == 0:
        raise ValueError("No captions to score.")
    if image is None:
        if len(captions) != len(features):
            raise ValueError(
                f"{len(captions)} captions for {len(features)} images: say which image each caption "
                "is scored on with image=[...]."
            )
        return torch.arange(len(captions))
    image = torch.as_tensor(np.asarray(image), dtype=torch.long)
    if len(image) != len(captions) or image.min() < 0 or image.max() >= len(features):
        raise ValueError(
            f"image must hold {len(captions)} indices into {len(features)} images, "
            f"not {len(image)} from {int(image.min())} to {int(image.max())}."
        )
    return image


def _succeeds(reading, caption: str) -> bool:
    """Whether a reading of a caption finds something; one that does not parse holds nothing."""
    try:
        return bool(reading(caption))
    except CaptionError:
        return False


@dataclass(frozen=True)
class Deployed:
    """The deployed score: cosine of the pooled image feature and the caption's feature."""

    name: str = "deployed"

    def score(self, encoder, features, captions, image=None) -> np.ndarray:
        """See :class:`Readout`."""
        image = _image_index(features, captions, image)
        distinct = list(dict.fromkeys(captions))
        place = {caption: row for row, caption in enumerate(distinct)}
        texts = encoder.encode_texts(distinct).double()
        rows = torch.tensor([place[caption] for caption in captions])
        return (features.pooled.double()[image] * texts[rows]).sum(-1).numpy()


class Displacement:
    """Antisymmetric Displacement Readout (ADR; Li et al. 2026).

    The caption's words are aligned with the patches; the score is the displacement from the object's
    centroid to the subject's along the axis of the relation, summed over the caption's relations. In
    units of the image's side, positive when the picture agrees.

    Parameters
    ----------
    variant : "excess" (the published default), "dense", "coupling" or "argmax"; see
        :func:`readout_utils.alignment.weights`.
    temperature : of the softmax or the coupling.
    words : what is aligned. ``"phrases"``: the whole noun phrases on either side of the relation, and no
        caption drops out. ``"content"``: every content word, relation words too, as published; subject and
        object are then the last words of their phrases, and a caption in which one of them is no content
        word ("tv" is too short) is not covered and scores 0. A caption with the same noun on both sides is
        not covered either.
    template : how a word is put to the text encoder; published: alone.

    Raises
    ------
    ValueError : an unknown variant or choice of words, a template without "{}".
    readout_utils.captions.CaptionError : when scoring a caption in which no directed relation is found.
    """

    signed = True

    def __init__(
        self,
        variant: str = "excess",
        temperature: float = TEMPERATURE,
        words: str = "phrases",
        template: str = "{}",
    ):
        if variant not in VARIANTS:
            raise ValueError(f"Unknown variant {variant!r}; there are {', '.join(VARIANTS)}.")
        if words not in ("phrases", "content"):
            raise ValueError(f"words is 'phrases' or 'content', not {words!r}.")
        if "{}" not in template:
            raise ValueError(f"The template {template!r} has no {{}} for the word.")
        self.variant, self.temperature, self.words, self.template = variant, temperature, words, template
        self.name = f"ADR {variant}" + (f" {temperature:g}" if temperature != TEMPERATURE else "")
        self.name += ", content words" if words == "content" else ""
        self.name += f", {template!r}" if template != "{}" else ""

    def __repr__(self) -> str:
        return f"Displacement({self.variant!r}, {self.temperature}, words={self.words!r})"

    def _aligned(self, caption: str) -> tuple[tuple[str, ...], list[tuple]]:
        """The words to align, sorted, and for each relation (subject column, object column, axis)."""
        relations = parse_relations(caption)
        if self.words == "phrases":
            words = tuple(sorted(noun_phrases(caption)))
            pairs = [(r.subject, r.object, r.axis) for r in relations]
        else:
            words = tuple(sorted(content_words(caption)))
            pairs = [(r.subject.split()[-1], r.object.split()[-1], r.axis) for r in relations]
        if any(a == b or a not in words or b not in words for a, b, _ in pairs):
            return words, []  # not covered
        return words, [(words.index(a), words.index(b), axis) for a, b, axis in pairs]

    def covers(self, captions: Sequence[str]) -> np.ndarray:
        """Whether each caption is scored (n,): not where no directed relation is found, or no word to align."""
        return np.array(
            [_succeeds(lambda c: self._aligned(c)[1], caption) for caption in captions], dtype=bool
        )

    def score(self, encoder, features, captions, image=None) -> np.ndarray:
        """See :class:`Readout`."""
        image = _image_index(features, captions, image)
        aligned = {caption: self._aligned(caption) for caption in dict.fromkeys(captions)}
        distinct = sorted({word for words, _ in aligned.values() for word in words})
        place = {word: row for row, word in enumerate(distinct)}
        scores = torch.zeros(len(captions), dtype=torch.float64)
        if not any(pairs for _, pairs in aligned.values()):
            return scores.numpy()
        vectors = encoder.encode_texts([self.template.format(word) for word in distinct])
        at_once = max(1, _NUMBERS // features.patches[0].numel())
        by_size: dict[int, list[int]] = {}  # captions with equally many words go together
        for j, caption in enumerate(captions):
            if aligned[caption][1]:
                by_size.setdefault(len(aligned[caption][0]), []).append(j)
        for members in by_size.values():
            for start in range(0, len(members), at_once):
                chunk = members[start : start + at_once]
                # one alignment for all captions that put the same words to the same image
                rows: dict[tuple, int] = {}
                row_of = [rows.setdefault((int(image[j]), aligned[captions[j]][0]), len(rows)) for j in chunk]
                columns = torch.tensor([[place[word] for word in words] for _, words in rows])
                places = self._places(features, [i for i, _ in rows], vectors[columns])
                item, row, subject, obj, axis = zip(
                    *(
                        (j, row, *relation)
                        for j, row in zip(chunk, row_of, strict=True)
                        for relation in aligned[captions[j]][1]
                    ),
                    strict=True,
                )
                row = torch.tensor(row)
                apart = places[row, torch.tensor(subject)] - places[row, torch.tensor(obj)]
                along = (apart * torch.tensor(axis, dtype=torch.float64)).sum(-1)
                scores.index_add_(0, torch.tensor(item), along)
        return scores.numpy()

    def _places(self, features: ImageFeatures, image: list[int], words: torch.Tensor) -> torch.Tensor:
        """Centroids (b, m, 2) of words (b, m, D) on images (b,)."""
        table = similarity(features.patches[image], words)
        return centroids(weights(table, self.variant, self.temperature), features.grid)


class HalfCrop:
    """Subject in the half it should be in, object in the other: a baseline with pooled features alone.

    For "a left of b" the cosine of the left half's pooled feature and "a", plus that of the right half's and "b";
    upper and lower halves for vertical relations (Li et al. 2026). The encoder must be opened with
    ``halves=True``.

    Parameters
    ----------
    template : how a noun is put to the text encoder.

    Raises
    ------
    ValueError : features without halves, a template without "{}".
    readout_utils.captions.CaptionError : when scoring a caption in which no directed relation is found.
    """

    name = "half-crop"

    def __init__(self, template: str = "{}"):
        if "{}" not in template:
            raise ValueError(f"The template {template!r} has no {{}} for the word.")
        self.template = template

    def covers(self, captions: Sequence[str]) -> np.ndarray:
        """Whether each caption is scored (n,): those with exactly one directed relation."""
        return np.array([_succeeds(parse_relation, caption) for caption in captions], dtype=bool)

    def score(self, encoder, features, captions, image=None) -> np.ndarray:
        """See :class:`Readout`."""
        image = _image_index(features, captions, image)
        if features.halves is None:
            raise ValueError("Half-crop needs pooled halves: load_encoder(..., halves=True).")
        relations = [parse_relation(caption) for caption in captions]
        # (left, right, upper, lower) half that lies where the axis points, and the one opposite
        toward = torch.tensor([(x > 0) if x else 2 + (y > 0) for x, y in (r.axis for r in relations)])
        nouns = encoder.encode_texts(
            [self.template.format(n) for r in relations for n in (r.subject, r.object)]
        )
        seen = features.halves[image[:, None], torch.stack([toward, toward ^ 1], dim=1)]  # (n, 2, D)
        return (seen.double() * nouns.double().unflatten(0, (-1, 2))).sum((1, 2)).numpy()


class PatchProbe:
    """The ceiling: a linear probe of the frozen patch features, trained with the scenes' truth.

    One ridge regression maps a patch feature to the share of the patch that each noun covers; the score
    is the displacement between the centroids of the predicted shares. Unlike ADR it is trained, on
    scenes of the small world, and so it only knows that world's nouns.

    Parameters
    ----------
    encoder : whose patch features are probed.
    scenes : training scenes, see :func:`readout_utils.scenes.random_scenes`.
    penalty : of the ridge regression.
    """

    name = "linear probe"
    signed = True

    def __init__(self, encoder: DualEncoder, scenes: Scenes, penalty: float = 1.0):
        features = encoder.encode_images(draw_scenes(scenes))
        targets = coverage(scenes, features.grid)
        self._ridge = Ridge(alpha=penalty).fit(
            features.patches.flatten(0, 1).numpy(), targets.reshape(-1, targets.shape[-1])
        )

    def covers(self, captions: Sequence[str]) -> np.ndarray:
        """Whether each caption is scored (n,): one relation between two nouns of the small world."""

        def known(caption):
            relation = parse_relation(caption)
            return relation.subject in NOUNS and relation.object in NOUNS

        return np.array([_succeeds(known, caption) for caption in captions], dtype=bool)

    def score(self, encoder, features, captions, image=None) -> np.ndarray:
        """See :class:`Readout`."""
        image = _image_index(features, captions, image)
        relations = [parse_relation(caption) for caption in captions]
        flat = features.patches.flatten(0, 1).numpy()
        shares = torch.from_numpy(self._ridge.predict(flat)).double().clamp(min=0)
        places = centroids(shares.unflatten(0, features.patches.shape[:2]), features.grid)
        subject = torch.tensor([noun_index(r.subject) for r in relations])
        obj = torch.tensor([noun_index(r.object) for r in relations])
        axis = torch.tensor([r.axis for r in relations], dtype=torch.float64)
        return ((places[image, subject] - places[image, obj]) * axis).sum(-1).numpy()


class DirectionOf:
    """The direction component of another readout: what is odd under swap and under flip.

    ``1/4 [s(a r b) - s(a r' b) - s(b r a) + s(b r' a)]`` of the wrapped score, a training-free readout
    in its own right.
    """

    signed = True

    def __init__(self, readout: Readout):
        self.readout = readout
        self.name = f"direction of {readout.name}"
        self.sees_image = getattr(readout, "sees_image", True)

    def covers(self, captions: Sequence[str]) -> np.ndarray:
        """Whether each caption is scored (n,): one relation, and the wrapped readout takes its whole orbit."""
        covered = np.array([_succeeds(orbit, caption) for caption in captions], dtype=bool)
        inner = getattr(self.readout, "covers", None)
        if inner is not None and covered.any():
            variants = [
                v for caption, fine in zip(captions, covered, strict=True) if fine for v in orbit(caption)
            ]
            covered[covered] = np.asarray(inner(variants)).reshape(-1, 4).all(1)
        return covered

    def score(self, encoder, features, captions, image=None) -> np.ndarray:
        """See :class:`Readout`."""
        if features is not None:
            image = _image_index(features, captions, image).repeat(4)
        variants = [variant for column in zip(*map(orbit, captions), strict=True) for variant in column]
        scores = self.readout.score(encoder, features, variants, image)
        return direction(scores.reshape(4, -1).T)


class TextPrior:
    """What captions give away without the picture: a classifier of their words, trained on other items.

    Logistic regression on which words, and which two or three words in a row, a caption holds; its score is the
    log-odds of being right. It needs no encoder and sees no image.

    Parameters
    ----------
    benchmark : :class:`readout_utils.items.Items` to learn from; not the ones to be scored.
    strength : inverse of the penalty.

    Raises
    ------
    ValueError : captions that are all right, or all wrong.
    """

    name = "text prior"
    sees_image = False
    signed = True

    def __init__(self, benchmark, strength: float = 1.0):
        captions = [caption for options in benchmark.captions for caption in options]
        right = benchmark.right.ravel()
        if right.all() or not right.any():
            raise ValueError(
                f"The captions of {benchmark.name} are all right or all wrong: nothing to learn."
            )
        words = CountVectorizer(ngram_range=(1, 3), binary=True, token_pattern=r"(?u)\b\w+\b")
        self._model = make_pipeline(words, LogisticRegression(C=strength, max_iter=1000))
        self._model.fit(captions, right)

    def score(self, encoder, features, captions, image=None) -> np.ndarray:
        """See :class:`Readout`; encoder, features and image are not looked at."""
        return self._model.decision_function(captions)
