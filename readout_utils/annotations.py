"""Rows of the field's annotation files: what each format says of a picture, checked field by field.

One function a format turns a row into a picture and its captions; :func:`readout_utils.benchmarks.load_benchmark`
reads the files and makes items of them.
"""

from __future__ import annotations

import json
from dataclasses import dataclass, replace
from pathlib import Path, PurePosixPath

import numpy as np

from .captions import RELATIONS, CaptionError, Relation, parse_relation


@dataclass(frozen=True)
class Row:
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
class Annotation:
    """What a row says: a picture of the picture folder and captions, the right one first."""

    picture: str
    captions: tuple[str, ...]
    group: str
    details: dict
    box: tuple[float, ...] | None = None
    correct: int | None = None  # None: the captions are still to be dealt
    null_group: str = ""


def _relation(row: Row, caption: str, known: frozenset[str]) -> Relation:
    try:
        relation = parse_relation(caption)
    except CaptionError as error:
        raise row.error(str(error)) from error
    if relation.phrase not in known:
        raise row.error(f"unknown relation {relation.phrase!r} in {caption!r}; known: {sorted(known)}.")
    return relation


_SIDES = frozenset(["to the left of", "to the right of"])
ON_UNDER, FRONT_BEHIND = frozenset(["on", "under"]), frozenset(["in front of", "behind"])
_ABOVE_BELOW = frozenset(["above", "below"])
# What'sUp A ships each of these two pictures under the other's name.
_EXCHANGED = {
    "pillow_left_of_chair": "pillow_right_of_chair",
    "pillow_right_of_chair": "pillow_left_of_chair",
}


def whatsup(row: Row, across: frozenset[str], across_name: str) -> Annotation:
    options = row.texts("caption_options", 4)
    relations = [_relation(row, caption, _SIDES | across) for caption in options]
    if len({relation.phrase for relation in relations}) < 4:
        raise row.error(f"the four options {options} do not hold four relations.")
    picture = PurePosixPath(row.text("image_path"))
    mended = picture.stem in _EXCHANGED
    true = relations[0]
    return Annotation(
        picture=_EXCHANGED[picture.stem] + picture.suffix if mended else picture.name,
        captions=options,
        group=true.phrase,
        details={"relation": true.phrase, "subject": true.subject, "object": true.object, "mended": mended},
        null_group="left-right" if true.phrase in _SIDES else across_name,
    )


def coco_spatial(row: Row) -> Annotation:
    if not isinstance(row.values, list) or len(row.values) != 3:
        raise row.error(f"not [number, true caption, false caption]: {row.values!r:.80}.")
    row = replace(row, values=dict(zip(("coco_id", "true", "false"), row.values, strict=True)))
    captions = row.text("true"), row.text("false")
    true, _ = (_relation(row, caption, _SIDES | _ABOVE_BELOW) for caption in captions)
    return Annotation(
        picture=f"{row.get('coco_id', int, 'the number of a COCO picture'):012d}.jpg",
        captions=captions,
        group="left-right" if true.phrase in _SIDES else "above-below",
        details={"relation": true.phrase, "subject": true.subject, "object": true.object},
    )


HORIZONTAL = frozenset(["left of", "right of", "at the left side of", "at the right side of"])
_FRAMES = {0: "object", 1: "viewer", 2: "either", None: None}


def vsr(row: Row) -> Annotation:
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
    if sideways != (relation in HORIZONTAL) or (sideways and said.phrase != relation):
        raise row.error(
            f"relation {relation!r} of {caption!r}; the horizontal ones are {sorted(HORIZONTAL)}, "
            "and the caption of each says a subject, it and an object."
        )
    frame = row.get("reference_frame", (int, float, type(None)), "0, 1, 2 or null")
    if frame not in _FRAMES:
        raise row.error(f"'reference_frame' is {frame}, not 0, 1, 2 or null.")
    return Annotation(
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


def _voters(row: Row, field: str) -> tuple[int, ...]:
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


def aro_stratum(relation: str) -> str:
    """The directed stratum of a relation of VG-Relation, or "".

    A phrase of the lexicon that ends the relation decides: "sitting on" is as vertical as "on".
    """
    words = relation.split()
    phrase = next((p for i in range(len(words)) if (p := " ".join(words[i:])) in RELATIONS), None)
    if relation in _SYMMETRIC or phrase in FRONT_BEHIND:
        return ""
    if phrase:
        return "left-right" if RELATIONS[phrase][0] else "vertical"
    return "verbs" if words[0].endswith("ing") or words[0] in _OTHER_VERBS else ""


def aro(row: Row) -> Annotation:
    relation = row.text("relation_name")
    return Annotation(
        picture=row.text("image_path"),
        captions=(row.text("true_caption"), row.text("false_caption")),
        group=relation,
        box=row.box(),
        details={"relation": relation, "symmetric": relation in _SYMMETRIC},
    )


def valse(row: Row) -> Annotation:
    votes = replace(row, values=row.get("mturk", dict, "a record of votes"))
    choices = ("caption", "foil", "other")
    details = {f"votes_{choice}": votes.get(choice, int, "a number of votes") for choice in choices}
    captions = row.text("caption"), row.text("foil")
    return Annotation(row.text("image_file"), captions, group=row.path.stem, details=details)


def sugarcrepe(row: Row) -> Annotation:
    captions = row.text("caption"), row.text("negative_caption")
    return Annotation(row.text("filename"), captions, group=row.path.stem, details={})


def hard_positive(row: Row, twin: Row, part: str) -> Annotation:
    original, positive = row.text("true_caption"), twin.text("true_caption")
    for field in ("image_id", "image_path", "false_caption"):
        if row.get(field, (str, int), "a text") != twin.get(field, (str, int), "a text"):
            raise twin.error(
                f"{field!r} is {twin.values[field]!r} and {row.values[field]!r} at the same place of {row.path}."
            )
    if positive == original:
        raise twin.error(f"the hard positive {positive!r} is the original caption of {row.path}.")
    picture = row.text("image_path")
    return Annotation(
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
