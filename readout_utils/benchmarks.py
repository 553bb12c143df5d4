"""Benchmarks: items of one picture and its captions, drawn here or read from the field's own files."""

from __future__ import annotations

import json
import zlib
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path, PurePosixPath

import numpy as np
import pandas as pd

from .captions import RELATIONS, CaptionError, Relation, parse_relation, relate
from .deflation import OFFSET
from .encoders import to_rgb
from .scenes import (
    HELD_OUT_STYLE,
    NOUNS,
    QUESTIONS,
    TRAINING_STYLES,
    Scenes,
    draw_scenes,
    prior_scenes,
    question_scenes,
)

_SCENE_BENCHMARKS = (*QUESTIONS, "prior", "hard-positives")


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


# --- the field's own files ------------------------------------------------------------------------


@dataclass(frozen=True)
class _Row:
    """One record of an annotation file, with where it stands: a position from 0, or its key."""

    path: Path
    row: int | str
    values: object

    def error(self, message: str) -> ValueError:
        return ValueError(f"{self.path}, row {self.row}: {message}")

    def get(self, field: str, kind: type | tuple[type, ...], what: str):
        if not isinstance(self.values, dict):
            raise self.error(f"not a record with fields: {self.values!r:.80}.")
        if field not in self.values:
            raise self.error(f"no field {field!r} among {', '.join(map(repr, self.values))}.")
        value = self.values[field]
        if not isinstance(value, kind) or isinstance(value, bool):
            raise self.error(f"{field!r} is {value!r:.80}, not {what}.")
        return value

    def text(self, field: str) -> str:
        return self._filled(field, self.get(field, str, "a text"))

    def texts(self, field: str, count: int) -> tuple[str, ...]:
        values = self.get(field, list, f"a list of {count} texts")
        if len(values) != count:
            raise self.error(f"{field!r} holds {len(values)} texts, not {count}.")
        return tuple(self._filled(field, value) for value in values)

    def _filled(self, field: str, value) -> str:
        if not isinstance(value, str) or not value.strip():
            raise self.error(f"{field!r} holds {value!r:.80} where a text should stand.")
        return value

    def box(self) -> tuple[float, ...]:
        """(left, top, width, height) in pixels."""
        box = tuple(self.get(f"bbox_{side}", (int, float), "a number of pixels") for side in "xywh")
        if not np.isfinite(box).all():
            raise self.error(f"the box {box} is not finite.")
        return box


@dataclass(frozen=True)
class _Item:
    """What a row says: a picture of the picture folder and captions, the right one first."""

    picture: str
    captions: tuple[str, ...]
    group: str
    details: dict
    box: tuple[float, ...] | None = None
    correct: int | None = None  # None: the captions are still to be dealt
    null_group: str = ""


def _relation(row: _Row, caption: str, known: frozenset[str]) -> Relation:
    try:
        relation = parse_relation(caption)
    except CaptionError as error:
        raise row.error(str(error)) from error
    if relation.phrase not in known:
        raise row.error(f"unknown relation {relation.phrase!r} in {caption!r}; known: {sorted(known)}.")
    return relation


_SIDES = frozenset(["to the left of", "to the right of"])
_ON_UNDER, _FRONT_BEHIND = frozenset(["on", "under"]), frozenset(["in front of", "behind"])
_ABOVE_BELOW = frozenset(["above", "below"])
# What'sUp A ships each of these two pictures under the other's name.
_EXCHANGED = {
    "pillow_left_of_chair": "pillow_right_of_chair",
    "pillow_right_of_chair": "pillow_left_of_chair",
}


def _whatsup(row: _Row, across: frozenset[str], across_name: str) -> _Item:
    options = row.texts("caption_options", 4)
    relations = [_relation(row, caption, _SIDES | across) for caption in options]
    if len({relation.phrase for relation in relations}) < 4:
        raise row.error(f"the four options {options} do not hold four relations.")
    picture = PurePosixPath(row.text("image_path"))
    mended = picture.stem in _EXCHANGED
    true = relations[0]
    return _Item(
        picture=_EXCHANGED[picture.stem] + picture.suffix if mended else picture.name,
        captions=options,
        group=true.phrase,
        details={"relation": true.phrase, "subject": true.subject, "object": true.object, "mended": mended},
        null_group="left-right" if true.phrase in _SIDES else across_name,
    )


def _coco_spatial(row: _Row) -> _Item:
    if not isinstance(row.values, list) or len(row.values) != 3:
        raise row.error(f"not [number, true caption, false caption]: {row.values!r:.80}.")
    row = replace(row, values=dict(zip(("coco_id", "true", "false"), row.values, strict=True)))
    captions = row.text("true"), row.text("false")
    true, _ = (_relation(row, caption, _SIDES | _ABOVE_BELOW) for caption in captions)
    return _Item(
        picture=f"{row.get('coco_id', int, 'the number of a COCO picture'):012d}.jpg",
        captions=captions,
        group="left-right" if true.phrase in _SIDES else "above-below",
        details={"relation": true.phrase, "subject": true.subject, "object": true.object},
    )


_HORIZONTAL = frozenset(["left of", "right of", "at the left side of", "at the right side of"])
_FRAMES = {0: "object", 1: "viewer", 2: "either", None: None}


def _vsr(row: _Row) -> _Item:
    caption, relation = row.text("caption"), row.text("relation")
    label = row.get("label", int, "0 or 1")
    if label not in (0, 1):
        raise row.error(f"'label' is {label}, not 0 or 1.")
    try:
        said = parse_relation(caption)
    except CaptionError:  # most of the 66 relations are none of our lexicon
        said = None
    if relation not in caption.lower():
        raise row.error(f"{caption!r} does not say its relation {relation!r}.")
    sideways = said is not None and said.axis[0] != 0
    if sideways != (relation in _HORIZONTAL) or (sideways and said.phrase != relation):
        raise row.error(
            f"relation {relation!r} of {caption!r}; the horizontal ones are {sorted(_HORIZONTAL)}, "
            "and the caption of each says a subject, it and an object."
        )
    frame = row.get("reference_frame", (int, float, type(None)), "0, 1, 2 or null")
    if frame not in _FRAMES:
        raise row.error(f"'reference_frame' is {frame}, not 0, 1, 2 or null.")
    return _Item(
        picture=row.text("image"),
        captions=(caption,),
        group=relation,
        correct=label,
        details={
            "relation": relation,
            "subject": said and said.subject,
            "object": said and said.object,
            "reference_frame": _FRAMES[frame],
            "votes_true": _voters(row, "vote_true_validator_id"),
            "votes_false": _voters(row, "vote_false_validator_id"),
            "split": row.path.stem,
        },
    )


def _voters(row: _Row, field: str) -> tuple[int, ...]:
    """Who voted so; the files write the list as a text."""
    text = row.get(field, str, "a list written as a text")
    try:
        voters = json.loads(text)
    except ValueError:
        voters = None
    if not isinstance(voters, list) or not all(type(voter) is int for voter in voters):
        raise row.error(f"{field!r} is {text!r:.80}, not a list of whole numbers written as a text.")
    return tuple(voters)


# Relations a picture shows either way round. The choice is ours: what ARO calls symmetric also holds
# directed relations with few items ("driving", "larger than"), and lacks "standing by".
_SYMMETRIC = frozenset(
    [
        "around", "attached to", "beside", "between", "by", "close to", "in between", "lying next to", "mixed with",
        "near", "next to", "on the other side of", "parked beside", "parked by", "parked near", "parked next to",
        "sitting beside", "sitting by", "sitting near", "sitting next to", "standing beside", "standing by",
        "standing near", "standing next to", "touching", "walking by", "walking next to", "with",
    ]
)  # fmt: skip
# Verbs of VG-Relation that do not end in -ing.
_OTHER_VERBS = frozenset(
    [
        "contain", "covered", "draped", "filled", "kept", "mounted", "painted", "parked", "perched", "piled",
        "reflected", "seen", "sprinkled", "stacked", "stuck", "surrounded", "topped", "worn", "wrapped",
    ]
)  # fmt: skip


def _aro_stratum(relation: str) -> str:
    """The directed stratum of a relation of VG-Relation, or "".

    A phrase of the lexicon that ends the relation decides: "sitting on" is as vertical as "on".
    """
    words = relation.split()
    phrase = next((p for i in range(len(words)) if (p := " ".join(words[i:])) in RELATIONS), None)
    if relation in _SYMMETRIC or phrase in _FRONT_BEHIND:
        return ""
    if phrase:
        return "left-right" if RELATIONS[phrase][0] else "vertical"
    return "verbs" if words[0].endswith("ing") or words[0] in _OTHER_VERBS else ""


def _aro(row: _Row) -> _Item:
    relation = row.text("relation_name")
    return _Item(
        picture=row.text("image_path"),
        captions=(row.text("true_caption"), row.text("false_caption")),
        group=relation,
        box=row.box(),
        details={"relation": relation, "symmetric": relation in _SYMMETRIC},
    )


def _valse(row: _Row) -> _Item:
    votes = replace(row, values=row.get("mturk", dict, "a record of votes"))
    choices = ("caption", "foil", "other")
    details = {f"votes_{choice}": votes.get(choice, int, "a number of votes") for choice in choices}
    captions = row.text("caption"), row.text("foil")
    return _Item(row.text("image_file"), captions, group=row.path.stem, details=details)


def _sugarcrepe(row: _Row) -> _Item:
    captions = row.text("caption"), row.text("negative_caption")
    return _Item(row.text("filename"), captions, group=row.path.stem, details={})


def _hard_positive(row: _Row, twin: _Row, part: str) -> _Item:
    original, positive = row.text("true_caption"), twin.text("true_caption")
    for field in ("image_id", "image_path", "false_caption"):
        if row.get(field, (str, int), "a text") != twin.get(field, (str, int), "a text"):
            raise twin.error(
                f"{field!r} is {twin.values[field]!r} and {row.values[field]!r} at the same place of {row.path}."
            )
    if positive == original:
        raise twin.error(f"the hard positive {positive!r} is the original caption of {row.path}.")
    picture = row.text("image_path")
    return _Item(
        # crops of ARO are named without a folder and lie where ARO's pictures do
        picture=picture if "/" in picture else f"data/images/{picture}",
        captions=(original, positive, row.text("false_caption")),
        group=part,
        box=row.box() if part == "swap" else None,
        correct=0,
        details={"pattern": _pattern(original, positive), "image_id": str(row.values["image_id"])},
    )


def _pattern(before: str, after: str) -> str:
    """The words that change, common beginning and end left out: "in -> within"."""
    old, new = before.split(), after.split()
    for end in (0, -1):
        while old and new and old[end] == new[end]:
            del old[end], new[end]
    return f"{' '.join(old)} -> {' '.join(new)}"


@dataclass(frozen=True)
class Origin:
    """Where a benchmark's files come from, and how they are read.

    Attributes
    ----------
    files : name -> number of rows published, in the order of the items.
    read : makes an item of a row (of one row of each file where they are ``aligned``).
    pictures : folders below ``root`` that may hold the pictures; the first that exists is taken.
    homepage, licence : of the annotation files.
    folders : folders below ``root`` that may hold the files.
    keep : which of the items belong to the benchmark.
    items : number of them published, where it is not the number of rows.
    null_offset : the published offset of the null partner.
    grouped_null : whether null partners come from an item's own ``null_group``.
    aligned : whether row i of each file speaks of the same item.
    repeats : whether the published files say the same of the same picture more than once.
    suffixes : other suffixes under which a file may lie.
    """

    files: dict[str, int]
    read: Callable[..., _Item]
    pictures: tuple[str, ...]
    homepage: str
    licence: str
    folders: tuple[str, ...] = ("", "data")
    keep: Callable[[_Item], bool] = lambda item: True
    items: int | None = None
    null_offset: int = OFFSET
    grouped_null: bool = False
    aligned: bool = False
    repeats: bool = False
    suffixes: tuple[str, ...] = ()

    @property
    def source(self) -> str:
        """Where to get the files, for messages."""
        return f"Get it from {self.homepage} (licence: {self.licence}); nothing is downloaded for you."


def _origins() -> dict[str, Origin]:
    whatsup = {"homepage": "https://github.com/amitakamath/whatsup_vlms", "licence": "MIT"}
    vsr = Origin(
        {"train.jsonl": 7680, "dev.jsonl": 1097, "test.jsonl": 2195},
        _vsr,
        ("images", "data/images"),
        "https://github.com/cambridgeltl/visual-spatial-reasoning",
        "Apache-2.0",
        folders=("splits/random", "random", "data/splits/random", ""),
    )
    aro = Origin(
        {"visual_genome_relation.json": 23937},
        _aro,
        ("images", "data/images"),
        "https://github.com/mertyg/vision-language-models-are-bows",
        "MIT",
        null_offset=997,
        repeats=True,
        suffixes=(".parquet",),
    )
    valse = {
        "read": _valse,
        "homepage": "https://github.com/Heidelberg-NLP/VALSE",
        "licence": "MIT",
        "keep": lambda item: item.details["votes_caption"] >= 2,
    }
    crepe = Origin(
        {
            "add_att.json": 692, "add_obj.json": 2062, "replace_att.json": 788, "replace_obj.json": 1652,
            "replace_rel.json": 1406, "swap_att.json": 666, "swap_obj.json": 245,
        },
        _sugarcrepe,
        ("val2017", "coco/images/val2017", "data/coco/images/val2017"),
        "https://github.com/RAIVNLab/sugar-crepe",
        "MIT",
    )  # fmt: skip
    origins = {
        "whatsup-a": Origin(
            {"controlled_images_dataset.json": 412},
            partial(_whatsup, across=_ON_UNDER, across_name="on-under"),
            ("controlled_images", "data/controlled_images"),
            **whatsup,
        ),
        "whatsup-b": Origin(
            {"controlled_clevr_dataset.json": 408},
            partial(_whatsup, across=_FRONT_BEHIND, across_name="front-behind"),
            ("controlled_clevr", "data/controlled_clevr"),
            null_offset=997,
            grouped_null=True,
            **whatsup,
        ),
        "coco-spatial": Origin(
            {"coco_qa_two_obj.json": 440}, _coco_spatial, ("val2017", "data/val2017"), **whatsup
        ),
        "vsr": vsr,
        "vsr/horizontal": replace(vsr, keep=lambda item: item.group in _HORIZONTAL, items=1224),
        "aro": aro,
    }
    for stratum in ("left-right", "vertical", "verbs"):
        origins[f"aro/{stratum}"] = replace(
            aro, keep=lambda item, stratum=stratum: _aro_stratum(item.group) == stratum
        )
    origins["valse/relations"] = Origin(
        {"relations.json": 614}, pictures=("val2017", "images"), items=535, **valse
    )
    origins["valse/actant-swap"] = Origin(
        {"actant-swap.json": 1042}, pictures=("images_512", "images"), items=949, **valse
    )
    origins["sugarcrepe"] = replace(crepe, repeats=True)  # 434 of add_obj is 469 of replace_obj
    for file, rows in crepe.files.items():
        origins[f"sugarcrepe/{Path(file).stem}"] = replace(crepe, files={file: rows})
    for part, file, rows in (
        ("swap", "visual_genome_attribution.json", 28748),
        ("replace-attributes", "vl_checklist_attributes.json", 10575),
        ("replace-relations", "vl_checklist_relations.json", 16868),
    ):
        origins[f"hard-positives/{part}"] = Origin(
            {f"data/{file}": rows, f"swapped_data/{file}": rows},
            partial(_hard_positive, part=part),
            ("",),
            "https://github.com/amitakamath/hard_positives",
            "none is stated",
            folders=("",),
            aligned=True,
            repeats=True,
        )
    return origins


#: Benchmarks read from files: name -> where these come from and what was published.
#:
#: :meta hide-value:
ORIGINS: dict[str, Origin] = _origins()


def _locate(name: str, origin: Origin, root: Path, file: str) -> Path:
    places = [root / folder / file for folder in origin.folders]
    places += [place.with_suffix(suffix) for suffix in origin.suffixes for place in places]
    for place in places:
        if place.is_file():
            return place
    raise FileNotFoundError(
        f"{name} is read from {file}; there is no {' or '.join(map(str, places))}. {origin.source}"
    )


def _read(path: Path) -> list[_Row]:
    """The records of a JSON, JSON-lines or parquet file, in its order."""
    row = None
    try:
        if path.suffix == ".parquet":
            values = pd.read_parquet(path).to_dict("records")
        elif path.suffix == ".jsonl":
            values = {}
            for row, line in enumerate(path.read_text("utf-8").rstrip("\n").split("\n")):
                values[row] = json.loads(line)
        else:
            values = json.loads(path.read_text("utf-8"))
    except ValueError as error:  # of JSON, of UTF-8 and of parquet alike
        raise ValueError(f"{path}{'' if row is None else f', row {row}'} does not parse: {error}") from error
    if not isinstance(values, (list, dict)):
        raise ValueError(f"{path} holds no rows: {values!r:.80}.")
    rows = values.items() if isinstance(values, dict) else enumerate(values)
    return [_Row(path, row, value) for row, value in rows]


def _check_count(what: str, count: int, published: int) -> None:
    if count != published:
        raise ValueError(f"{what}: {count}, where {published} are published; complete=False reads a part.")


def _file_items(name: str, root: str | Path, complete: bool) -> Items:
    """The items of a benchmark's own files."""
    origin, root = ORIGINS[name], Path(root)
    parts = []
    for file, published in origin.files.items():
        parts.append(_read(_locate(name, origin, root, file)))
        if complete:
            _check_count(f"rows of {file}", len(parts[-1]), published)
    if origin.aligned:
        if len({len(part) for part in parts}) > 1:
            counts = " and ".join(f"{len(p)} in {file}" for p, file in zip(parts, origin.files, strict=True))
            raise ValueError(f"{name}: rows that should stand at the same place in two files, {counts}.")
        groups = list(zip(*parts, strict=True))
    else:
        groups = [(row,) for part in parts for row in part]

    seen: dict[tuple, _Row] = {}
    kept: list[tuple[_Row, _Item, bool]] = []
    for rows in groups:
        row, item = rows[0], origin.read(*rows)
        first = seen.setdefault((item.picture, item.box, item.captions), row)
        if first is not row and not origin.repeats:
            raise row.error(f"the same picture and captions as row {first.row} of {first.path}.")
        if origin.keep(item):
            kept.append((row, item, first is not row))
    if complete and origin.items is not None:
        _check_count(f"items of {name}", len(kept), origin.items)
    if not kept:
        raise ValueError(f"Benchmark {name!r} has no items in {root}.")

    items = [item for _, item, _ in kept]
    shown = list(dict.fromkeys((item.picture, item.box) for item in items))
    place = {key: index for index, key in enumerate(shown)}
    folder = _picture_folder(origin, root, items[0].picture)
    dealt = [_deal(item, number) for number, item in enumerate(items)]
    details = [
        {
            "file": row.path.name,
            "row": row.row,
            **item.details,
            **({"repeated": again} if origin.repeats else {}),
        }
        for row, item, again in kept
    ]
    return Items(
        name=name,
        images=PictureFiles([folder / picture for picture, _ in shown], [box for _, box in shown]),
        image=np.array([place[item.picture, item.box] for item in items]),
        captions=tuple(captions for captions, _ in dealt),
        correct=np.array([correct for _, correct in dealt]),
        group=np.array([item.group for item in items]),
        source=np.array([item.picture for item in items]),
        details=_frame(details),
        null_offset=origin.null_offset,
        null_group=np.array([item.null_group for item in items]) if origin.grouped_null else None,
    )


def _deal(item: _Item, number: int) -> tuple[tuple[str, ...], int]:
    """The captions of the benchmark's item of this number, and which is right.

    The files put the right caption first. It takes each position in turn, so that a scorer that
    always picks one position is at chance.
    """
    if item.correct is not None:
        return item.captions, item.correct
    turn = number % len(item.captions)
    return item.captions[-turn:] + item.captions[:-turn] if turn else item.captions, turn


def _frame(records: list[dict]) -> pd.DataFrame:
    """A table of records in which a missing text stays None."""
    columns = {column: [record[column] for record in records] for column in records[0]}
    return pd.DataFrame(
        {
            column: pd.Series(values, dtype=object if any(v is None for v in values) else None)
            for column, values in columns.items()
        }
    )


def _picture_folder(origin: Origin, root: Path, picture: str) -> Path:
    """The first folder of pictures that exists; ``root`` if the pictures lie there."""
    folders = [root / folder for folder in origin.pictures]
    for folder in folders:
        if folder.is_dir():
            return folder
    return root if (root / picture).is_file() else folders[0]


def load_benchmark(
    name: str,
    *,
    root: str | Path | None = None,
    items: int = 2000,
    seed: int = 0,
    complete: bool = True,
) -> Items:
    """A benchmark by name: scenes drawn here, or the field's own, read from their files.

    Nothing is downloaded. Pictures are opened when they are used, so that a benchmark loads without
    them; ``benchmark.images.missing()`` lists those that are not there. Items keep the order of the files;
    ``details`` says for each its ``file`` and ``row`` (from 0, or the record's key) and what its row tells
    besides. Of a choice the right caption stands at each position in turn. ``source`` is the photograph.

    Scenes, drawn here: ``"scenes/left-right"`` and ``"scenes/above-below"``, balanced so that text alone cannot
    answer; ``"scenes/prior"``, above-below with a habit that text gives away (see
    :func:`readout_utils.scenes.prior_scenes`); ``"scenes/hard-positives"``, captions (c, c_p, c_n) for
    :mod:`readout_utils.hard_positives`. Each with ``"/held-out-style"``, ``"/held-out-pairs"`` or both appended,
    for stickers of a style and noun pairs that no encoder of this book saw in training.

    From files, which lie below ``root`` as in the original repository or in ``root`` itself
    (:data:`ORIGINS` says what was published where):

    ``"whatsup-a"``, ``"whatsup-b"``
        ``controlled_images_dataset.json`` or ``controlled_clevr_dataset.json``, pictures in
        ``controlled_images/`` or ``controlled_clevr/``. Four captions; groups are relations. Two pictures of A
        bear each other's name (a pillow left and right of a chair): they are exchanged back, and ``details``
        says so (``mended``). Null partners of B come from the same axis.
    ``"coco-spatial"``
        ``coco_qa_two_obj.json`` of What'sUp, pictures in ``val2017/``.
    ``"vsr"``, ``"vsr/horizontal"``
        Statements: ``splits/random/{train,dev,test}.jsonl`` (or ``random/``), pictures in ``images/``.
        Horizontal are left of, right of, at the left side of, at the right side of. ``details`` has
        ``subject`` and ``object`` (None where the caption does not parse), who voted true and false, and
        ``reference_frame``: the files say 0, 1, 2 or nothing; to read these as object, viewer, either and
        missing is *inferred*, no source says it.
    ``"aro"``, ``"aro/left-right"``, ``"aro/vertical"``, ``"aro/verbs"``
        VG-Relation: ``visual_genome_relation.json`` or ``.parquet``, pictures in ``images/``, cropped to the
        boxes. ``details`` marks ``symmetric`` relations, which are in the file and in none of the three directed
        strata. Which are symmetric is our choice (ARO's own list also holds rare directed ones), and so are the
        strata: vertical and left-right are relations that are or end in a phrase of
        :data:`readout_utils.captions.RELATIONS` with that axis, depth (in front of, behind) left out; verbs
        are the other directed relations that begin with a verb.
    ``"valse/relations"``, ``"valse/actant-swap"``
        ``data/relations.json``, ``data/actant-swap.json``; pictures in ``val2017/`` (COCO) and ``images_512/``
        (SWiG), or ``images/``. Items are the valid rows: at least two annotators voted for the caption.
    ``"sugarcrepe"``, ``"sugarcrepe/add_att"``, ...
        ``data/*.json``, pictures in ``val2017/``. Groups are the seven files.
    ``"hard-positives/swap"``, ``"hard-positives/replace-attributes"``, ``"hard-positives/replace-relations"``
        Twin files ``data/NAME.json`` and ``swapped_data/NAME.json``, pictures where ``image_path`` says. The
        three captions always stand in this order, for :mod:`readout_utils.hard_positives` reads them so: the
        original, the hard positive, the hard negative; ``correct`` is 0. ``details`` has ``pattern``, the
        words in which the first two differ. Pictures of swap are crops.

    ARO, the hard positives and SugarCrepe as a whole say some things twice of one picture: these items stay,
    and ``details`` marks them ``repeated``. Anywhere else a repeated item is an error.

    Parameters
    ----------
    name : of the benchmark.
    root : folder of the original files, for benchmarks read from files.
    items : how many scene items, a multiple of four (two scenes a noun pair, each asked both ways round). Files
        are read whole.
    seed : fixes the scenes; the same on every machine.
    complete : whether the files must have as many rows as were published; False reads a part of them.

    Raises
    ------
    ValueError : an unknown name; of scenes, a number of items that is no positive multiple of four; of files,
        no ``root``, a number of rows other than published, a file that does not parse, a row with a missing,
        empty or wrong field, an unknown relation or a repeated item: the file and the row are named.
    FileNotFoundError : a file that is not there; says where to get it and under which licence.
    """
    if name in ORIGINS:
        if root is None:
            files = ", ".join(ORIGINS[name].files)
            raise ValueError(
                f"{name!r} is read from {files}: give root=, their folder. {ORIGINS[name].source}"
            )
        return _file_items(name, root, complete)
    source, _, rest = name.partition("/")
    axis, *twins = rest.split("/")
    if (
        source != "scenes"
        or axis not in _SCENE_BENCHMARKS
        or not set(twins) <= {"held-out-style", "held-out-pairs"}
    ):
        known = ", ".join(f"'scenes/{axis}'" for axis in _SCENE_BENCHMARKS)
        raise ValueError(
            f"Unknown benchmark {name!r}. There are {known}, each also with '/held-out-style' "
            f"and '/held-out-pairs' appended, and from files {', '.join(map(repr, ORIGINS))}."
        )
    if items < 4 or items % 4:
        raise ValueError(f"Ask for a positive multiple of four items, not {items}.")
    options = {
        "seed": zlib.crc32(f"{'/'.join(['scenes', axis, *sorted(twins)])}|{seed}".encode()),
        "styles": (HELD_OUT_STYLE,) if "held-out-style" in twins else TRAINING_STYLES,
        "pairs": "held-out" if "held-out-pairs" in twins else "training",
    }
    if axis == "hard-positives":
        from .hard_positives import scene_hard_positives  # which builds on this module

        return scene_hard_positives(items, name=name, **options)
    if axis == "prior":
        scenes = prior_scenes(items // 2, **options)
        _, pair = np.unique(np.sort(scenes.noun, axis=1), axis=0, return_inverse=True)
        return scene_items("above-below", scenes, name, source=pair.repeat(2))
    return scene_items(axis, question_scenes(axis, items // 2, **options), name)
