"""Items of a benchmark: one picture and its captions each, and the pictures they are about."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import pandas as pd

from .captions import relate
from .deflation import OFFSET
from .encoders import to_rgb
from .scenes import NOUNS, QUESTIONS, Scenes, draw_scenes


class PictureFiles(Sequence):
    """Pictures that are opened when they are asked for: paths, each with a box to crop or None.

    An integer gives the picture, as 8-bit RGB; a slice, a mask or several integers give some of the files,
    still unopened. ``boxes`` are (left, top, width, height) in pixels; one that reaches over the edge is cut there.

    Raises
    ------
    FileNotFoundError, ValueError : on opening, for a file that is missing, does not open, or does not hold the
        box's corner; the file is named.
    """

    def __init__(self, paths: Sequence[str | Path], boxes: Sequence | None = None):
        self.paths = tuple(map(Path, paths))
        self.boxes = (None,) * len(self.paths) if boxes is None else tuple(boxes)
        if len(self.boxes) != len(self.paths):
            raise ValueError(f"{len(self.boxes)} boxes for {len(self.paths)} pictures.")

    def __len__(self) -> int:
        return len(self.paths)

    def __getitem__(self, index):
        index = np.arange(len(self))[index]
        if index.ndim:
            return PictureFiles([self.paths[i] for i in index], [self.boxes[i] for i in index])
        picture, box = to_rgb(self.paths[index]), self.boxes[index]
        if box is None:
            return picture
        left, top, width, height = (int(number) for number in box)
        if width < 1 or height < 1 or left >= picture.width or top >= picture.height or left < 0 or top < 0:
            raise ValueError(
                f"The box {tuple(box)} lies outside {self.paths[index]} of {picture.width} x {picture.height} px."
            )
        return picture.crop((left, top, min(left + width, picture.width), min(top + height, picture.height)))

    def missing(self) -> list[Path]:
        """Files that are not there."""
        return [path for path in dict.fromkeys(self.paths) if not path.is_file()]


@dataclass(frozen=True, eq=False)
class Items:
    """The n items of a benchmark.

    An item is either a *choice*, k of at least two captions one of which is right, or a *statement*, one
    caption that is true or false of its picture.

    Attributes
    ----------
    name : of the benchmark.
    images : the M distinct pictures, anything ``encode_images`` takes; :class:`PictureFiles` open on demand.
    image : (n,) index of each item's picture.
    captions : n rows of k captions, the same k for all items.
    correct : (n,) which caption is right; for statements 1 where the statement is true, 0 where it is false.
    group : (n,) the stratum an item belongs to.
    source : (n,) which items belong together, as items of one photograph do: no item is the null of another
        of its source, and resampling keeps them together. By default each image is a source.
    scenes : describes the pictures where they were drawn.
    details : further columns, one row an item; ``file`` and ``row`` say where an item was read.
    null_offset : the published offset K of the null partner.
    null_group : (n,) the stratum within which null partners are taken; None: all items.
    """

    name: str
    images: Sequence
    image: np.ndarray
    captions: tuple[tuple[str, ...], ...]
    correct: np.ndarray
    group: np.ndarray
    source: np.ndarray | None = None
    scenes: Scenes | None = None
    details: pd.DataFrame | None = None
    null_offset: int = OFFSET
    null_group: np.ndarray | None = None

    def __post_init__(self):
        n = len(self.captions)
        if n == 0:
            raise ValueError(f"Benchmark {self.name!r} has no items.")
        if self.source is None:
            object.__setattr__(self, "source", self.image)
        if self.null_group is None:
            object.__setattr__(self, "null_group", np.zeros(n, dtype=int))
        for field in ("image", "correct", "group", "source", "null_group"):
            values = np.asarray(getattr(self, field))
            if values.shape != (n,):
                raise ValueError(f"{self.name}: {n} rows of captions, {field!r} is of shape {values.shape}.")
            if pd.isna(values).any():
                row = int(np.flatnonzero(pd.isna(values))[0])
                raise ValueError(f"{self.name}, item {row}: {field!r} is missing.")
            if field in ("image", "correct"):
                if not (
                    np.issubdtype(values.dtype, np.integer) or (field == "correct" and values.dtype == bool)
                ):
                    raise ValueError(f"{self.name}: {field!r} holds {values.dtype}, not integers.")
                values = values.astype(int)
            object.__setattr__(self, field, values)
        if self.details is not None and len(self.details) != n:
            raise ValueError(f"{self.name}: {n} rows of captions, {len(self.details)} in 'details'.")
        if self.details is not None and ("file" in self.details) != ("row" in self.details):
            raise ValueError(f"{self.name}: details name a file and a row, or neither.")
        if self.image.min() < 0 or self.image.max() >= len(self.images):
            raise ValueError(f"{self.name}: an item points outside its {len(self.images)} images.")
        width = len(self.captions[0])
        for row, options in enumerate(self.captions):
            if isinstance(options, str):
                raise ValueError(
                    f"{self.name}, {self.where(row)}: one text {options!r}, not a row of captions."
                )
            if not len(options):
                raise ValueError(f"{self.name}, {self.where(row)}: no captions.")
            if len(options) != width:
                raise ValueError(
                    f"{self.name}, {self.where(row)}: {len(options)} captions where the first item has {width}; "
                    "make one benchmark of each number."
                )
            if not 0 <= self.correct[row] < max(len(options), 2):
                raise ValueError(
                    f"{self.name}, {self.where(row)}: {len(options)} captions, number {self.correct[row]} "
                    "said to be right."
                )

    def __len__(self) -> int:
        return len(self.captions)

    @property
    def statements(self) -> bool:
        """Whether the items are statements, true or false, rather than choices."""
        return len(self.captions[0]) == 1

    @property
    def right(self) -> np.ndarray:
        """Which captions (n, k) are right; of statements, which are true."""
        if self.statements:
            return self.correct[:, None] == 1
        return np.arange(len(self.captions[0])) == self.correct[:, None]

    def where(self, row: int) -> str:
        """Where an item comes from, for messages: its file and row, or its number."""
        if self.details is None or "file" not in self.details:
            return f"item {row}"
        return f"{self.details['file'].iloc[row]}, row {self.details['row'].iloc[row]}"

    def right_captions(self) -> list[str]:
        """The right caption of each item of a choice; of a statement, its caption."""
        column = np.zeros(len(self), int) if self.statements else self.correct
        return [options[right] for options, right in zip(self.captions, column, strict=True)]

    def select(self, index, name: str | None = None) -> Items:
        """Some of the items, by mask, slice or integers, with the pictures they need."""
        index = np.arange(len(self))[index]
        used, image = np.unique(self.image[index], return_inverse=True)
        images = self.images
        images = images[used] if isinstance(images, (np.ndarray, PictureFiles)) else [images[i] for i in used]
        return Items(
            name=name or self.name,
            images=images,
            image=image,
            captions=tuple(self.captions[i] for i in index),
            correct=self.correct[index],
            group=self.group[index],
            source=self.source[index],
            scenes=self.scenes[used] if self.scenes is not None else None,
            details=self.details.iloc[index].reset_index(drop=True) if self.details is not None else None,
            null_offset=self.null_offset,
            null_group=self.null_group[index],
        )


def scene_items(axis: str, scenes: Scenes, name: str = "scenes", source: Sequence | None = None) -> Items:
    """Ask every scene of :func:`question_scenes` both ways round.

    ``source`` (n,) of the items; by default two scenes in a row, which show the same two nouns, are one.

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
        source=np.arange(n) // 4 if source is None else source,
        scenes=scenes,
    )
