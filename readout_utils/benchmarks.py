"""Benchmarks: items of one picture and its captions, drawn here or read from the field's own files."""

from __future__ import annotations

import json
import zlib
from collections.abc import Callable
from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path

import numpy as np
import pandas as pd

from . import annotations
from .annotations import Annotation, Row
from .deflation import OFFSET
from .hard_positives import scene_hard_positives
from .items import Items, PictureFiles, scene_items
from .scenes import (
    HELD_OUT_STYLE,
    QUESTIONS,
    TRAINING_STYLES,
    prior_scenes,
    question_scenes,
)

_SCENE_BENCHMARKS = (*QUESTIONS, "prior", "hard-positives")


# --- the field's own files ------------------------------------------------------------------------


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
    read: Callable[..., Annotation]
    pictures: tuple[str, ...]
    homepage: str
    licence: str
    folders: tuple[str, ...] = ("", "data")
    keep: Callable[[Annotation], bool] = lambda item: True
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
        annotations.vsr,
        ("images", "data/images"),
        "https://github.com/cambridgeltl/visual-spatial-reasoning",
        "Apache-2.0",
        folders=("splits/random", "random", "data/splits/random", ""),
    )
    aro = Origin(
        {"visual_genome_relation.json": 23937},
        annotations.aro,
        ("images", "data/images"),
        "https://github.com/mertyg/vision-language-models-are-bows",
        "MIT",
        null_offset=997,
        repeats=True,
        suffixes=(".parquet",),
    )
    valse = {
        "read": annotations.valse,
        "homepage": "https://github.com/Heidelberg-NLP/VALSE",
        "licence": "MIT",
        "keep": lambda item: item.details["votes_caption"] >= 2,
    }
    crepe = Origin(
        {
            "add_att.json": 692, "add_obj.json": 2062, "replace_att.json": 788, "replace_obj.json": 1652,
            "replace_rel.json": 1406, "swap_att.json": 666, "swap_obj.json": 245,
        },
        annotations.sugarcrepe,
        ("val2017", "coco/images/val2017", "data/coco/images/val2017"),
        "https://github.com/RAIVNLab/sugar-crepe",
        "MIT",
    )  # fmt: skip
    origins = {
        "whatsup-a": Origin(
            {"controlled_images_dataset.json": 412},
            partial(annotations.whatsup, across=annotations.ON_UNDER, across_name="on-under"),
            ("controlled_images", "data/controlled_images"),
            **whatsup,
        ),
        "whatsup-b": Origin(
            {"controlled_clevr_dataset.json": 408},
            partial(annotations.whatsup, across=annotations.FRONT_BEHIND, across_name="front-behind"),
            ("controlled_clevr", "data/controlled_clevr"),
            null_offset=997,
            grouped_null=True,
            **whatsup,
        ),
        "coco-spatial": Origin(
            {"coco_qa_two_obj.json": 440}, annotations.coco_spatial, ("val2017", "data/val2017"), **whatsup
        ),
        "vsr": vsr,
        "vsr/horizontal": replace(vsr, keep=lambda item: item.group in annotations.HORIZONTAL, items=1224),
        "aro": aro,
    }
    for stratum in ("left-right", "vertical", "verbs"):
        origins[f"aro/{stratum}"] = replace(
            aro, keep=lambda item, stratum=stratum: annotations.aro_stratum(item.group) == stratum
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
            partial(annotations.hard_positive, part=part),
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


def _read(path: Path) -> list[Row]:
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
    return [Row(path, row, value) for row, value in rows]


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

    seen: dict[tuple, Row] = {}
    kept: list[tuple[Row, Annotation, bool]] = []
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


def _deal(item: Annotation, number: int) -> tuple[tuple[str, ...], int]:
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
        return scene_hard_positives(items, name=name, **options)
    if axis == "prior":
        scenes = prior_scenes(items // 2, **options)
        _, pair = np.unique(np.sort(scenes.noun, axis=1), axis=0, return_inverse=True)
        return scene_items("above-below", scenes, name, source=pair.repeat(2))
    return scene_items(axis, question_scenes(axis, items // 2, **options), name)
