"""Benchmarks: items of one picture and two or more captions, one of them right."""

from __future__ import annotations

import zlib
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from .captions import relate
from .scenes import HELD_OUT_STYLE, NOUNS, QUESTIONS, TRAINING_STYLES, Scenes, draw_scenes, question_scenes


@dataclass(frozen=True)
class Items:
    """The n items of a benchmark.

    ``images`` holds the M distinct pictures (anything ``encode_images`` takes); ``image`` (n,)
    indexes them. ``captions`` has n rows of k candidate captions, ``correct`` (n,) says which is right,
    ``group`` (n,) names the stratum an item belongs to. ``source`` (n,) says which items belong together, as
    items of one photograph do: no item is the null of another of its source, and resampling keeps them
    together; by default each image is a source. ``scenes`` describes the pictures where they were drawn.
    """

    name: str
    images: Sequence
    image: np.ndarray
    captions: tuple[tuple[str, ...], ...]
    correct: np.ndarray
    group: np.ndarray
    source: np.ndarray | None = None
    scenes: Scenes | None = None

    def __post_init__(self):
        n = len(self.captions)
        if n == 0:
            raise ValueError(f"Benchmark {self.name!r} has no items.")
        if self.source is None:
            object.__setattr__(self, "source", self.image)
        for field in ("image", "correct", "group", "source"):
            object.__setattr__(self, field, np.asarray(getattr(self, field)))
            if len(getattr(self, field)) != n:
                raise ValueError(
                    f"{self.name}: {n} rows of captions, {len(getattr(self, field))} in {field!r}."
                )
        if self.image.min() < 0 or self.image.max() >= len(self.images):
            raise ValueError(f"{self.name}: an item points outside its {len(self.images)} images.")
        for row, options in enumerate(self.captions):
            if isinstance(options, str):
                raise ValueError(f"{self.name}, item {row}: one text {options!r}, not a row of captions.")
            if len(options) < 2 or not 0 <= self.correct[row] < len(options):
                raise ValueError(
                    f"{self.name}, item {row}: {len(options)} captions, number {self.correct[row]} "
                    "said to be right."
                )

    def __len__(self) -> int:
        return len(self.captions)

    def right_captions(self) -> list[str]:
        """The right caption of each item."""
        return [options[right] for options, right in zip(self.captions, self.correct, strict=True)]


def scene_items(axis: str, scenes: Scenes, name: str = "scenes") -> Items:
    """Ask every scene of :func:`question_scenes` both ways round.

    Item 2j asks about the first noun of scene j and item 2j + 1 about the second: both captions
    name the same nouns in the same order and differ in the relation. Which of the two stands first
    alternates, so that a scorer that always picks the first is at chance.
    """
    first, second = QUESTIONS[axis]
    names, places = list(NOUNS), scenes.x if axis == "left-right" else scenes.y
    captions, correct = [], []
    for index, (a, b) in enumerate(scenes.noun):
        for turn, (subject, obj) in enumerate(((a, b), (b, a))):
            here, there = places[index] if turn == 0 else places[index][::-1]
            options = [relate(names[subject], phrase, names[obj]) for phrase in (first, second)]
            right = int(here > there)
            if (index // 2 + turn) % 2:
                options, right = options[::-1], 1 - right
            captions.append(tuple(options))
            correct.append(right)
    n = len(captions)
    return Items(
        name=name,
        images=draw_scenes(scenes),
        image=np.arange(n) // 2,
        captions=tuple(captions),
        correct=np.array(correct),
        group=np.full(n, axis),
        source=np.arange(n) // 4,  # two scenes of the same two nouns, each asked both ways
        scenes=scenes,
    )


def load_benchmark(name: str, *, items: int = 2000, seed: int = 0) -> Items:
    """A benchmark by name.

    Parameters
    ----------
    name : ``"scenes/left-right"`` or ``"scenes/above-below"``; each with ``"/held-out-style"``,
        ``"/held-out-pairs"`` or both appended, for stickers of a style and noun pairs that no
        encoder of this book saw in training.
    items : how many, a multiple of four (two scenes a noun pair, each asked both ways round).
    seed : fixes the scenes; the same on every machine.

    Raises
    ------
    ValueError : an unknown name, a number of items that is no positive multiple of four.
    """
    source, _, rest = name.partition("/")
    axis, *twins = rest.split("/")
    if source != "scenes" or axis not in QUESTIONS or not set(twins) <= {"held-out-style", "held-out-pairs"}:
        known = ", ".join(f"'scenes/{axis}'" for axis in QUESTIONS)
        raise ValueError(
            f"Unknown benchmark {name!r}. There are {known}, each also with '/held-out-style' "
            "and '/held-out-pairs' appended."
        )
    if items < 4 or items % 4:
        raise ValueError(f"Ask for a positive multiple of four items, not {items}.")
    scenes = question_scenes(
        axis,
        items // 2,
        seed=zlib.crc32(f"{'/'.join(['scenes', axis, *sorted(twins)])}|{seed}".encode()),
        styles=(HELD_OUT_STYLE,) if "held-out-style" in twins else TRAINING_STYLES,
        pairs="held-out" if "held-out-pairs" in twins else "training",
    )
    return scene_items(axis, scenes, name)
