"""Benchmarks read from the field's own files: the real ones, and stand-ins in the original layouts."""

from __future__ import annotations

import copy
import json
from collections import Counter
from dataclasses import replace
from pathlib import Path

import numpy as np
import pandas as pd
import pytest
from PIL import Image

from readout_utils.benchmarks import ORIGINS, Items, load_benchmark
from readout_utils.captions import parse_relation
from readout_utils.deflation import credit, derangement
from readout_utils.evaluation import evaluate
from readout_utils.readouts import Deployed, Displacement
from readout_utils.scenes import draw_scenes, random_scenes

# --- stand-ins: a few rows of every benchmark, in the layout of its repository ---------------------


def whatsup(subject: str, true: str, obj: str, others: tuple[str, ...], folder: str) -> dict:
    name = {"to the left of": "left_of", "to the right of": "right_of", "in front of": "in-front_of"}.get(
        true, true
    )
    return {
        "image_path": f"data/{folder}/{subject}_{name}_{obj}.jpeg",
        "caption_options": [f"A {subject} {phrase} a {obj}" for phrase in (true, *others)],
    }


LEFT, RIGHT = "to the left of", "to the right of"
A = "controlled_images"
B = "controlled_clevr"


def vsr(image: str, caption: str, relation: str, label: int, frame: float | None = None) -> dict:
    voters = ["[2, 16]", "[]"] if label else ["[]", "[66, 1, 7]"]
    return {
        "image": image, "image_link": f"http://images.cocodataset.org/train2017/{image}", "caption": caption,
        "label": label, "relation": relation, "annotator_id": 29, "vote_true_validator_id": voters[0],
        "vote_false_validator_id": voters[1], "reference_frame": frame,
    }  # fmt: skip


def aro(image: str, subject: str, relation: str, obj: str, box: tuple[int, int, int, int]) -> dict:
    return {
        "image_id": image, "image_path": f"{image}.jpg", "relation_name": relation,
        "true_caption": f"the {subject} is {relation} the {obj}",
        "false_caption": f"the {obj} is {relation} the {subject}",
        **dict(zip(("bbox_x", "bbox_y", "bbox_w", "bbox_h"), box, strict=True)),
    }  # fmt: skip


def valse(image: str, caption: str, foil: str, votes: tuple[int, int, int]) -> dict:
    return {
        "dataset": "coco_2017", "image_file": image, "caption": caption, "foil": foil,
        "mturk": dict(zip(("foil", "caption", "other"), votes, strict=True)),
    }  # fmt: skip


def hard(image: str, true: str, false: str, box: tuple | None = None, path: str | None = None) -> dict:
    row = {"image_id": image, "true_caption": true, "false_caption": false}
    row["image_path"] = path or f"data/VG_100K/{image}.jpg"
    return row | (dict(zip(("bbox_x", "bbox_y", "bbox_w", "bbox_h"), box, strict=True)) if box else {})


ARO = [
    aro("7", "dog", LEFT, "cup", (8, 4, 40, 30)),
    aro("7", "cup", RIGHT, "dog", (8, 4, 40, 30)),
    aro("9", "cat", "next to", "tree", (0, 0, 64, 64)),
    aro("9", "cat", "sitting on", "bed", (0, 0, 32, 64)),
    aro("8", "boy", "holding", "ball", (10, 10, 20, 20)),
    aro("8", "tree", "behind", "boy", (0, 0, 64, 64)),
    aro("7", "dog", LEFT, "cup", (8, 4, 40, 30)),
    aro("8", "bird", "above", "boy", (1, 2, 30, 40)),
    aro("9", "shirt", "of", "man", (0, 0, 64, 64)),
    aro("9", "boy", "looking out", "bus", (0, 0, 64, 64)),
    aro("9", "mountain", "covered with", "snow", (0, 0, 64, 64)),
    aro("9", "bus", "parked in front of", "tree", (0, 0, 64, 64)),
    aro("9", "girl", "sitting next to", "boy", (0, 0, 64, 64)),
]
RELATION_TWINS = {
    "data": [
        hard("61", "chair in tent", "chair out of tent"),
        hard("62", "kite in sky", "kite out of sky"),
        hard("62", "kite in sky", "kite out of sky"),
        hard("63", "man holding bat", "man dropping bat", path="data/VG_100K_2/63.jpg"),
    ],
    "swapped_data": [
        hard("61", "chair within tent", "chair out of tent"),
        hard("62", "kite within sky", "kite out of sky"),
        hard("62", "kite within sky", "kite out of sky"),
        hard("63", "man gripping bat", "man dropping bat", path="data/VG_100K_2/63.jpg"),
    ],
}
SWAP_TWINS = {
    "data": [
        hard("71", "the red dog and the big cup", "the big dog and the red cup", (4, 8, 20, 30)),
        hard("72", "the old cat and the wet tree", "the wet cat and the old tree", (0, 0, 9, 9), "72.jpg"),
    ],
    "swapped_data": [
        hard("71", "the big cup and the red dog", "the big dog and the red cup", (4, 8, 20, 30)),
        hard("72", "the wet tree and the old cat", "the wet cat and the old tree", (0, 0, 9, 9), "72.jpg"),
    ],
}

STANDINS: dict[str, dict[str, object]] = {
    "whatsup-a": {
        "data/controlled_images_dataset.json": [
            whatsup("mug", "on", "chair", ("under", LEFT, RIGHT), A),
            whatsup("pillow", LEFT, "chair", ("on", "under", RIGHT), A),
            whatsup("mug", RIGHT, "chair", ("on", "under", LEFT), A),
            whatsup("pillow", RIGHT, "chair", ("on", "under", LEFT), A),
            whatsup("beer bottle", "under", "chair", ("on", LEFT, RIGHT), A),
        ]
    },
    "whatsup-b": {
        "data/controlled_clevr_dataset.json": [
            whatsup("mug", RIGHT, "knife", ("in front of", "behind", LEFT), B),
            whatsup("mug", "in front of", "knife", ("behind", LEFT, RIGHT), B),
            whatsup("can", LEFT, "cap", ("in front of", "behind", RIGHT), B),
            whatsup("can", "behind", "cap", ("in front of", LEFT, RIGHT), B),
        ]
    },
    "coco-spatial": {
        "data/coco_qa_two_obj.json": [
            [37777, "A photo of a dining table to the left of a tv", "A photo of a dining table to the right of a tv"],
            [37777, "A photo of a tv above a cup", "A photo of a tv below a cup"],
            [802, "A photo of a cup to the right of a dog", "A photo of a cup to the left of a dog"],
        ]
    },
    "vsr": {
        "data/splits/random/train.jsonl": [
            vsr("000000000003.jpg", "The dog is at the left side of the cup.", "at the left side of", 1, 1.0),
            vsr("000000000003.jpg", "The dog is touching the cup.", "touching", 0),
            vsr("000000000001.jpg", "The hot dog is right of the cup.", "right of", 1, 0.0),
        ],
        "data/splits/random/dev.jsonl": [vsr("000000000002.jpg", "The cup is left of the dog.", "left of", 0)],
        "data/splits/random/test.jsonl": [
            vsr("000000000004.jpg", "The bed is at the right side of the dog.", "at the right side of", 1, 2.0),
            vsr("000000000004.jpg", "The bed is above the dog.", "above", 1),
        ],
    },
    "aro": {"visual_genome_relation.json": ARO},
    "valse/relations": {
        "data/relations.json": {
            "relations:5": valse("000000000005.jpg", "A dog on a bed.", "A dog under a bed.", (0, 3, 0)),
            "relations:6": valse("000000000006.jpg", "A cat in a hat.", "A cat on a hat.", (2, 1, 0)),
            "relations:7": valse("000000000005.jpg", "A dog sits up.", "A dog sits down.", (1, 2, 0)),
        }
    },
    "valse/actant-swap": {
        "data/actant-swap.json": {
            "actions_test_0": valse("driving_8.jpg", "A man drives a car.", "A car drives a man.", (0, 2, 1)),
        }
    },
    "sugarcrepe": {
        f"data/{file}": {
            "0": {
                "filename": f"00000000000{number}.jpg", "caption": f"a red dog {number}",
                "negative_caption": f"a blue dog {number}",
            },
            "2": {"filename": "000000000001.jpg", "caption": "a dog", "negative_caption": "a cat"},
        }
        for number, file in enumerate(ORIGINS["sugarcrepe"].files)
    },
    "hard-positives/swap": {f"{k}/visual_genome_attribution.json": v for k, v in SWAP_TWINS.items()},
    "hard-positives/replace-attributes": {f"{k}/vl_checklist_attributes.json": v for k, v in RELATION_TWINS.items()},
    "hard-positives/replace-relations": {f"{k}/vl_checklist_relations.json": v for k, v in RELATION_TWINS.items()},
}  # fmt: skip


def standin(name: str) -> dict[str, object]:
    """The stand-in's files of a benchmark; of a part of one, the files it is read from."""
    files = STANDINS.get(name) or STANDINS[name.split("/")[0]]
    return {path: copy.deepcopy(rows) for path, rows in files.items() if Path(path).name in
            {Path(file).name for file in ORIGINS[name].files}}  # fmt: skip


def write(root: Path, files: dict[str, object]) -> Path:
    for file, rows in files.items():
        path = root / file
        path.parent.mkdir(parents=True, exist_ok=True)
        lines = [json.dumps(row) + "\n" for row in rows] if path.suffix == ".jsonl" else [json.dumps(rows)]
        path.write_text("".join(lines), encoding="utf-8")
    return root


def load(root: Path, name: str, files: dict[str, object] | None = None) -> Items:
    return load_benchmark(name, root=write(root, files or standin(name)), complete=False)


def draw(root: Path, names: list[str]) -> dict[str, np.ndarray]:
    """A scene under each of the names, saved without loss whatever the suffix says."""
    pictures = dict(zip(names, draw_scenes(random_scenes(len(names), seed=5)), strict=True))
    for name, pixels in pictures.items():
        (root / name).parent.mkdir(parents=True, exist_ok=True)
        Image.fromarray(pixels).save(root / name, format="PNG")
    return pictures


def shown(benchmark: Items) -> list[np.ndarray]:
    """The picture of every item."""
    return [np.asarray(benchmark.images[i]) for i in benchmark.image]


def assert_shows(benchmark: Items, expected: list[np.ndarray]) -> None:
    for row, (pixels, picture) in enumerate(zip(shown(benchmark), expected, strict=True)):
        assert np.array_equal(pixels, picture), row


def cut(picture: np.ndarray, x: int, y: int, w: int, h: int) -> np.ndarray:
    return picture[y : y + h, x : x + w]


# --- each benchmark -------------------------------------------------------------------------------


def test_whatsup_a(tmp_path):
    files = ["mug_on_chair", "pillow_left_of_chair", "mug_right_of_chair", "pillow_right_of_chair",
             "beer bottle_under_chair"]  # fmt: skip
    pictures = draw(tmp_path, [f"data/controlled_images/{file}.jpeg" for file in files])
    benchmark = load(tmp_path, "whatsup-a")
    assert benchmark.correct.tolist() == [0, 1, 2, 3, 0]
    assert benchmark.captions[:2] == (
        ("A mug on a chair", "A mug under a chair", "A mug to the left of a chair", "A mug to the right of a chair"),
        ("A pillow to the right of a chair", "A pillow to the left of a chair", "A pillow on a chair",
         "A pillow under a chair"),
    )  # fmt: skip
    assert [row[c] for row, c in zip(benchmark.captions, benchmark.correct, strict=True)] == [
        "A mug on a chair", "A pillow to the left of a chair", "A mug to the right of a chair",
        "A pillow to the right of a chair", "A beer bottle under a chair",
    ]  # fmt: skip
    # the picture that shows the pillow on the left is the one named after the right, and the reverse
    mended = [files[0], files[3], files[2], files[1], files[4]]
    assert benchmark.source.tolist() == [f"{file}.jpeg" for file in mended]
    assert_shows(benchmark, [pictures[f"data/controlled_images/{file}.jpeg"] for file in mended])
    assert benchmark.group.tolist() == ["on", LEFT, RIGHT, RIGHT, "under"]
    assert benchmark.details.to_dict("list") == {
        "file": ["controlled_images_dataset.json"] * 5,
        "row": [0, 1, 2, 3, 4],
        "relation": ["on", LEFT, RIGHT, RIGHT, "under"],
        "subject": ["mug", "pillow", "mug", "pillow", "beer bottle"],
        "object": ["chair"] * 5,
        "mended": [False, True, False, True, False],
    }
    assert benchmark.null_offset == 101 and len(set(benchmark.null_group)) == 1


def test_whatsup_b_takes_null_partners_on_the_same_axis(tmp_path):
    benchmark = load(tmp_path, "whatsup-b")
    assert benchmark.group.tolist() == [RIGHT, "in front of", LEFT, "behind"]
    assert benchmark.null_group.tolist() == ["left-right", "front-behind"] * 2
    assert benchmark.null_offset == 997
    assert derangement(benchmark.source, benchmark.null_offset, benchmark.null_group).tolist() == [2, 3, 0, 1]
    assert benchmark.right_captions()[3] == "A can behind a cap" and benchmark.correct.tolist() == [
        0,
        1,
        2,
        3,
    ]
    assert not benchmark.details["mended"].any()


def test_coco_spatial(tmp_path):
    pictures = draw(tmp_path, ["data/val2017/000000037777.jpg", "data/val2017/000000000802.jpg"])
    first, second = pictures.values()
    benchmark = load(tmp_path, "coco-spatial")
    assert benchmark.captions == (
        ("A photo of a dining table to the left of a tv", "A photo of a dining table to the right of a tv"),
        ("A photo of a tv below a cup", "A photo of a tv above a cup"),
        ("A photo of a cup to the right of a dog", "A photo of a cup to the left of a dog"),
    )
    assert benchmark.correct.tolist() == [0, 1, 0]
    assert benchmark.group.tolist() == ["left-right", "above-below", "left-right"]
    assert benchmark.image.tolist() == [0, 0, 1] and len(benchmark.images) == 2
    assert benchmark.source.tolist() == ["000000037777.jpg"] * 2 + ["000000000802.jpg"]
    assert_shows(benchmark, [first, first, second])
    assert benchmark.details[["row", "relation", "subject", "object"]].values.tolist() == [
        [0, LEFT, "dining table", "tv"], [1, "above", "tv", "cup"], [2, RIGHT, "cup", "dog"]
    ]  # fmt: skip
    assert benchmark.null_offset == 101


def test_vsr(tmp_path):
    pictures = draw(tmp_path, [f"data/images/00000000000{i}.jpg" for i in (1, 2, 3, 4)])
    one, two, three, four = pictures.values()
    benchmark = load(tmp_path, "vsr")
    assert benchmark.statements
    assert benchmark.captions == tuple(
        (row["caption"],) for rows in STANDINS["vsr"].values() for row in rows
    )  # train, dev, test, each in its order
    assert benchmark.correct.tolist() == [1, 0, 1, 0, 1, 1]
    assert_shows(benchmark, [three, three, one, two, four, four])
    assert benchmark.source[:3].tolist() == ["000000000003.jpg"] * 2 + ["000000000001.jpg"]
    details = benchmark.details
    assert list(zip(details["file"], details["row"], details["split"], strict=True)) == [
        ("train.jsonl", 0, "train"), ("train.jsonl", 1, "train"), ("train.jsonl", 2, "train"),
        ("dev.jsonl", 0, "dev"), ("test.jsonl", 0, "test"), ("test.jsonl", 1, "test"),
    ]  # fmt: skip
    assert details["reference_frame"].tolist() == ["viewer", None, "object", None, "either", None]
    assert details["subject"].tolist() == ["dog", None, "hot dog", "cup", "bed", "bed"]
    assert details["object"].tolist() == ["cup", None, "cup", "dog", "dog", "dog"]
    assert details["votes_true"].tolist() == [(2, 16), (), (2, 16), (), (2, 16), (2, 16)]
    assert details["votes_false"].tolist() == [(), (66, 1, 7), (), (66, 1, 7), (), ()]
    assert details["relation"].tolist() == benchmark.group.tolist()
    assert benchmark.null_offset == 101

    horizontal = load(tmp_path, "vsr/horizontal")
    assert horizontal.group.tolist() == ["at the left side of", "right of", "left of", "at the right side of"]
    assert horizontal.details["row"].tolist() == [0, 2, 0, 0]
    assert_shows(horizontal, [three, one, two, four])


def test_aro_crops_and_strata(tmp_path):
    pictures = draw(tmp_path, ["images/7.jpg", "images/8.jpg", "images/9.jpg"])
    benchmark = load(tmp_path, "aro")
    assert_shows(
        benchmark,
        [
            cut(pictures[f"images/{row['image_path']}"], *(row[f"bbox_{side}"] for side in "xywh"))
            for row in ARO
        ],
    )
    assert benchmark.source.tolist() == [row["image_path"] for row in ARO]
    # one picture for each crop, not one for each row
    assert benchmark.image.tolist() == [0, 0, 1, 2, 3, 4, 0, 5, 1, 1, 1, 1, 1]
    assert benchmark.correct.tolist() == [0, 1] * 6 + [0]
    assert benchmark.captions[:2] == (
        ("the dog is to the left of the cup", "the cup is to the left of the dog"),
        ("the dog is to the right of the cup", "the cup is to the right of the dog"),
    )
    assert benchmark.right_captions() == [row["true_caption"] for row in ARO]
    assert benchmark.group.tolist() == benchmark.details["relation"].tolist()
    assert np.flatnonzero(benchmark.details["symmetric"]).tolist() == [2, 12]
    assert np.flatnonzero(benchmark.details["repeated"]).tolist() == [6]
    assert benchmark.null_offset == 997
    strata = {part: load(tmp_path, f"aro/{part}") for part in ("left-right", "vertical", "verbs")}
    assert {part: items.details["row"].tolist() for part, items in strata.items()} == {
        "left-right": [0, 1, 6], "vertical": [3, 7], "verbs": [4, 9, 10]
    }  # fmt: skip
    assert all(items.correct.tolist() == [0, 1, 0][: len(items)] for items in strata.values())
    assert_shows(strata["vertical"], [cut(pictures["images/9.jpg"], 0, 0, 32, 64),
                                      cut(pictures["images/8.jpg"], 1, 2, 30, 40)])  # fmt: skip


def test_aro_from_parquet(tmp_path):
    from_json = load(tmp_path / "json", "aro")
    (tmp_path / "parquet").mkdir()
    pd.DataFrame(ARO).to_parquet(tmp_path / "parquet/visual_genome_relation.parquet")
    benchmark = load_benchmark("aro", root=tmp_path / "parquet", complete=False)
    for field in ("captions", "name", "null_offset"):
        assert getattr(benchmark, field) == getattr(from_json, field)
    for field in ("image", "correct", "group", "source"):
        assert np.array_equal(getattr(benchmark, field), getattr(from_json, field))
    assert benchmark.images.boxes == from_json.images.boxes
    assert benchmark.details["file"].unique().tolist() == ["visual_genome_relation.parquet"]
    assert benchmark.details.drop(columns="file").equals(from_json.details.drop(columns="file"))


def test_valse_items_are_the_valid_rows(tmp_path):
    pictures = draw(tmp_path, ["val2017/000000000005.jpg"])
    benchmark = load(tmp_path, "valse/relations")
    assert benchmark.captions == (
        ("A dog on a bed.", "A dog under a bed."), ("A dog sits down.", "A dog sits up.")
    )  # fmt: skip
    assert benchmark.correct.tolist() == [0, 1] and benchmark.group.tolist() == ["relations"] * 2
    assert benchmark.details.to_dict("list") == {
        "file": ["relations.json"] * 2,
        "row": ["relations:5", "relations:7"],
        "votes_caption": [3, 2],
        "votes_foil": [0, 1],
        "votes_other": [0, 0],
    }
    assert benchmark.source.tolist() == ["000000000005.jpg"] * 2
    assert_shows(benchmark, list(pictures.values()) * 2)
    drawn = draw(tmp_path, ["images_512/driving_8.jpg"])
    swap = load(tmp_path, "valse/actant-swap")
    assert (
        swap.captions == (("A man drives a car.", "A car drives a man."),) and swap.group[0] == "actant-swap"
    )
    assert_shows(swap, list(drawn.values()))


def test_sugarcrepe(tmp_path):
    stems = [Path(file).stem for file in ORIGINS["sugarcrepe"].files]
    pictures = draw(tmp_path, [f"data/coco/images/val2017/00000000000{i}.jpg" for i in range(7)])
    benchmark = load(tmp_path, "sugarcrepe")
    assert benchmark.group.tolist() == [stem for stem in stems for _ in range(2)]
    assert benchmark.right_captions()[:4] == ["a red dog 0", "a dog", "a red dog 1", "a dog"]
    assert benchmark.correct.tolist() == [0, 1] * 7
    assert benchmark.details["row"].tolist() == ["0", "2"] * 7  # the key, for swap_obj leaves one out
    assert benchmark.details["repeated"].tolist() == [False, False] + [False, True] * 6
    by_number = list(pictures.values())
    assert_shows(benchmark, [by_number[i] for number in range(7) for i in (number, 1)])
    part = load(tmp_path, "sugarcrepe/swap_obj")
    assert part.captions == (("a red dog 6", "a blue dog 6"), ("a cat", "a dog"))
    assert set(part.details["file"]) == {"swap_obj.json"} and "repeated" not in part.details


def test_hard_positives(tmp_path):
    draw_names = ["data/VG_100K/61.jpg", "data/VG_100K/62.jpg", "data/VG_100K_2/63.jpg", "data/VG_100K/71.jpg",
                  "data/images/72.jpg"]  # fmt: skip
    pictures = draw(tmp_path, draw_names)
    benchmark = load(tmp_path, "hard-positives/replace-relations")
    kite = ("kite in sky", "kite within sky", "kite out of sky")
    assert benchmark.captions == (
        ("chair in tent", "chair within tent", "chair out of tent"), kite, kite,
        ("man holding bat", "man gripping bat", "man dropping bat"),
    )  # fmt: skip
    assert benchmark.correct.tolist() == [0] * 4
    assert benchmark.details["pattern"].tolist() == ["in -> within"] * 3 + ["holding -> gripping"]
    assert benchmark.details["image_id"].tolist() == ["61", "62", "62", "63"]
    assert benchmark.details["repeated"].tolist() == [False, False, True, False]
    assert benchmark.source.tolist() == [row["image_path"] for row in RELATION_TWINS["data"]]
    assert_shows(benchmark, [pictures[draw_names[i]] for i in (0, 1, 1, 2)])
    assert set(benchmark.group) == {"replace-relations"}
    assert set(load(tmp_path, "hard-positives/replace-attributes").details["file"]) == {
        "vl_checklist_attributes.json"
    }

    swap = load(tmp_path, "hard-positives/swap")
    assert swap.captions[0] == (
        "the red dog and the big cup", "the big cup and the red dog", "the big dog and the red cup"
    )  # fmt: skip
    assert swap.details["pattern"][0] == "red dog and the big cup -> big cup and the red dog"
    assert_shows(swap, [cut(pictures[draw_names[3]], 4, 8, 20, 30), cut(pictures[draw_names[4]], 0, 0, 9, 9)])
    assert swap.source.tolist() == ["data/VG_100K/71.jpg", "data/images/72.jpg"]


# --- what holds for all ---------------------------------------------------------------------------

ALL = sorted(ORIGINS)


def test_every_origin_says_where_from_and_under_which_licence():
    for name, origin in ORIGINS.items():
        assert origin.homepage.startswith("https://github.com/"), name
        expected = {"vsr": "Apache-2.0", "hard-positives": "none is stated"}.get(name.split("/")[0], "MIT")
        assert origin.licence == expected, name


@pytest.mark.parametrize("name", ALL)
def test_loads_without_pictures_and_counts_rows(tmp_path, name):
    benchmark = load(tmp_path, name)
    assert benchmark.name == name
    assert benchmark.images.missing() == list(dict.fromkeys(benchmark.images.paths))
    with pytest.raises(FileNotFoundError, match="No image at"):
        benchmark.images[0]
    rows = len(next(iter(standin(name).values())))
    first = next(iter(ORIGINS[name].files.values()))
    with pytest.raises(ValueError, match=f": {rows}, where {first} are published; complete=False"):
        load_benchmark(name, root=tmp_path)


@pytest.mark.parametrize("name", [name for name in ALL if not name.startswith("hard-positives")])
def test_files_and_pictures_may_lie_in_root(tmp_path, name):
    original = load(tmp_path / "original", name)
    flat = load(tmp_path / "flat", name, {Path(file).name: rows for file, rows in standin(name).items()})
    assert flat.captions == original.captions and flat.source.tolist() == original.source.tolist()
    draw(tmp_path / "flat", sorted(set(flat.source)))
    assert load_benchmark(name, root=tmp_path / "flat", complete=False).images.missing() == []


@pytest.mark.parametrize("folder", ["splits/random", "random", "data/splits/random", "."])
def test_vsr_layouts(tmp_path, folder):
    files = {f"{folder}/{Path(file).name}": rows for file, rows in standin("vsr").items()}
    draw(tmp_path, [f"images/00000000000{i}.jpg" for i in (1, 2, 3, 4)])
    assert load(tmp_path, "vsr", files).images.missing() == []


@pytest.mark.parametrize("name", [n for n in ALL if n.split("/")[0] not in ("vsr", "hard-positives")])
def test_picking_one_position_is_chance(tmp_path, name):
    benchmark = load(tmp_path, name)
    k = len(benchmark.captions[0])
    whole = len(benchmark) // k * k  # positions are dealt in turn: whole rounds are exactly fair
    for position in range(k):
        if whole:
            scores = np.tile(np.eye(k)[position], (whole, 1))
            assert credit(scores, benchmark.correct[:whole]).mean() == pytest.approx(1 / k)
    assert np.bincount(benchmark.correct, minlength=k).max() <= -(-len(benchmark) // k)


@pytest.mark.parametrize("name", ALL)
def test_missing_files_say_where_to_get_them(tmp_path, name):
    with pytest.raises(ValueError, match=f"give root=.*{ORIGINS[name].homepage}.*licence"):
        load_benchmark(name)
    for file in standin(name):
        root = write(tmp_path / Path(file).stem / Path(file).parent.name, standin(name))
        (root / file).unlink()
        with pytest.raises(FileNotFoundError) as caught:
            load_benchmark(name, root=root, complete=False)
        message = str(caught.value)
        assert Path(file).name in message and str(root) in message
        assert ORIGINS[name].homepage in message and ORIGINS[name].licence in message


def test_complete_counts_items_too(tmp_path, monkeypatch):
    write(tmp_path, standin("valse/relations"))
    origin = replace(ORIGINS["valse/relations"], files={"relations.json": 3})
    monkeypatch.setitem(ORIGINS, "valse/relations", origin)
    with pytest.raises(ValueError, match="items of valse/relations: 2, where 535 are published"):
        load_benchmark("valse/relations", root=tmp_path)
    monkeypatch.setitem(ORIGINS, "valse/relations", replace(origin, items=2))
    assert len(load_benchmark("valse/relations", root=tmp_path)) == 2


# --- errors ---------------------------------------------------------------------------------------


def put(field: str, value, row: int | str = 1, file: int = 0):
    def change(files):
        list(files.values())[file][row][field] = value

    return change


def drop(field: str, row: int | str = 1, file: int = 0):
    def change(files):
        del list(files.values())[file][row][field]

    return change


def put_row(value, row: int | str = 1, file: int = 0):
    def change(files):
        list(files.values())[file][row] = value

    return change


def again(files):
    """The last row of the last file says once more what the first row of the first says."""
    parts = list(files.values())
    if isinstance(parts[0], dict):
        parts[-1]["again"] = next(iter(parts[0].values()))
    else:
        parts[-1].append(parts[0][0])


def shorter(files):
    list(files.values())[1].pop()


WHATSUP_FILE, COCO_FILE = r"controlled_images_dataset\.json, row 1", r"coco_qa_two_obj\.json, row 1"
TRAIN, ARO_FILE = r"train\.jsonl, row 1", r"visual_genome_relation\.json, row 1"
VALSE_FILE, TWIN = r"relations\.json, row relations:6", r"swapped_data/vl_checklist_relations\.json, row 1"
FOUR = ["A cup on a bed", "A cup under a bed", "A cup to the left of a bed", "A cup to the right of a bed"]

ERRORS = [
    ("whatsup-a", drop("image_path"), WHATSUP_FILE + ": no field 'image_path'"),
    ("whatsup-a", put("image_path", 3), WHATSUP_FILE + ": 'image_path' is 3, not a text"),
    (
        "whatsup-a",
        put("caption_options", "A cup on a bed"),
        WHATSUP_FILE + ": 'caption_options' is 'A cup on a bed'",
    ),
    ("whatsup-a", put("caption_options", FOUR[:3]), WHATSUP_FILE + ": .*holds 3 texts, not 4"),
    ("whatsup-a", put("caption_options", [*FOUR[:3], " "]), WHATSUP_FILE + ": 'caption_options' holds ' '"),
    ("whatsup-a", put("caption_options", [*FOUR[:3], None]), WHATSUP_FILE + ": 'caption_options' holds None"),
    (
        "whatsup-a",
        put("caption_options", [*FOUR[:3], FOUR[0]]),
        WHATSUP_FILE + ": .*do not hold four relations",
    ),
    (
        "whatsup-a",
        put("caption_options", [*FOUR[:3], "A cup behind a bed"]),
        WHATSUP_FILE + ": unknown relation 'behind'",
    ),
    (
        "whatsup-a",
        put("caption_options", [*FOUR[:3], "A cup by a bed"]),
        WHATSUP_FILE + ": No relation phrase in 'A cup by a bed'",
    ),
    (
        "whatsup-b",
        put("caption_options", FOUR),
        r"controlled_clevr_dataset\.json, row 1: unknown relation 'on'",
    ),
    ("whatsup-a", again, r"dataset\.json, row 5: the same picture and captions as row 0"),
    ("whatsup-a", put_row("a text"), WHATSUP_FILE + ": not a record with fields: 'a text'"),
    (
        "coco-spatial",
        put_row([5, "a cup above a dog"]),
        COCO_FILE + ": not .number, true caption, false caption",
    ),
    ("coco-spatial", put_row({"id": 5}), COCO_FILE + ": not .number, true caption, false caption"),
    ("coco-spatial", put(0, "5"), COCO_FILE + ": 'coco_id' is '5', not the number"),
    ("coco-spatial", put(2, ""), COCO_FILE + ": 'false' holds ''"),
    ("coco-spatial", put(1, "A photo of a cup behind a tv"), COCO_FILE + ": unknown relation 'behind'"),
    ("coco-spatial", put(2, "A photo of a cup on a tv"), COCO_FILE + ": unknown relation 'on'"),
    ("coco-spatial", again, r"two_obj\.json, row 3: the same picture and captions as row 0"),
    ("vsr", put("label", 2), TRAIN + ": 'label' is 2, not 0 or 1"),
    ("vsr", put("label", "1"), TRAIN + ": 'label' is '1', not 0 or 1"),
    ("vsr", put("label", True), TRAIN + ": 'label' is True, not 0 or 1"),
    ("vsr", put("caption", ""), TRAIN + ": 'caption' holds ''"),
    ("vsr", drop("relation"), TRAIN + ": no field 'relation'"),
    (
        "vsr",
        put("relation", "above"),
        TRAIN + ": 'The dog is touching the cup.' does not say its relation 'above'",
    ),
    (
        "vsr",
        put("relation", "left", row=0, file=1),
        r"dev\.jsonl, row 0: relation 'left' of 'The cup is left of",
    ),
    (
        "vsr/horizontal",
        put("caption", "The cup is left of.", row=0, file=1),
        r"dev\.jsonl, row 0: relation 'left of' of",
    ),
    (
        "vsr/horizontal",
        put("caption", "The cup is to the left of the dog.", row=0, file=1),
        r"dev\.jsonl, row 0: relation 'left of' of",
    ),
    ("vsr", put("reference_frame", 3), TRAIN + ": 'reference_frame' is 3, not 0, 1, 2 or null"),
    ("vsr", put("reference_frame", "viewer"), TRAIN + ": 'reference_frame' is 'viewer'"),
    ("vsr", drop("reference_frame"), TRAIN + ": no field 'reference_frame'"),
    (
        "vsr",
        put("vote_true_validator_id", [2]),
        TRAIN + ": 'vote_true_validator_id' is .2., not a list written",
    ),
    ("vsr", put("vote_true_validator_id", "[2,"), TRAIN + ": 'vote_true_validator_id' is '.2,', not a list"),
    (
        "vsr",
        put("vote_false_validator_id", "[2.5]"),
        TRAIN + ": 'vote_false_validator_id' is '.2.5.', not a list",
    ),
    ("vsr", put("vote_false_validator_id", "7"), TRAIN + ": 'vote_false_validator_id' is '7', not a list"),
    ("vsr", again, r"test\.jsonl, row 2: the same picture and captions as row 0 of .*train\.jsonl"),
    ("aro", drop("bbox_w"), ARO_FILE + ": no field 'bbox_w'"),
    ("aro", put("bbox_x", "8"), ARO_FILE + ": 'bbox_x' is '8', not a number of pixels"),
    ("aro", put("bbox_h", float("nan")), ARO_FILE + r": the box \(8, 4, 40, nan\) is not finite"),
    ("aro", put("false_caption", " "), ARO_FILE + ": 'false_caption' holds ' '"),
    ("aro/verbs", drop("relation_name"), ARO_FILE + ": no field 'relation_name'"),
    ("valse/relations", drop("mturk", "relations:6"), VALSE_FILE + ": no field 'mturk'"),
    ("valse/relations", put("mturk", 3, "relations:6"), VALSE_FILE + ": 'mturk' is 3, not a record of votes"),
    ("valse/relations", put("mturk", {"caption": 1}, "relations:6"), VALSE_FILE + ": no field 'foil'"),
    (
        "valse/relations",
        put("mturk", {"caption": "1", "foil": 1, "other": 1}, "relations:6"),
        VALSE_FILE + ": 'caption' is '1', not a number of votes",
    ),
    ("valse/relations", put("foil", "", "relations:6"), VALSE_FILE + ": 'foil' holds ''"),
    (
        "valse/relations",
        again,
        r"relations\.json, row again: the same picture and captions as row relations:5",
    ),
    ("sugarcrepe", drop("filename", "2"), r"add_att\.json, row 2: no field 'filename'"),
    (
        "sugarcrepe",
        put("negative_caption", None, "2", 6),
        r"swap_obj\.json, row 2: 'negative_caption' is None",
    ),
    ("sugarcrepe/add_obj", again, r"add_obj\.json, row again: the same picture and captions as row 0"),
    (
        "hard-positives/replace-relations",
        shorter,
        "same place in two files, 4 in data/.* and 3 in swapped_data/",
    ),
    (
        "hard-positives/replace-relations",
        put("image_path", "x.jpg", file=1),
        TWIN + ": 'image_path' is 'x.jpg' and",
    ),
    ("hard-positives/replace-relations", put("image_id", 62, file=1), TWIN + ": 'image_id' is 62 and '62'"),
    (
        "hard-positives/replace-relations",
        put("false_caption", "no", file=1),
        TWIN + ": 'false_caption' is 'no' and",
    ),
    (
        "hard-positives/replace-relations",
        put("true_caption", "kite in sky", file=1),
        TWIN + ": the hard positive 'kite in sky' is the original caption",
    ),
    ("hard-positives/replace-relations", put("true_caption", "", file=1), TWIN + ": 'true_caption' holds ''"),
    (
        "hard-positives/replace-relations",
        put("true_caption", ""),
        r"/data/vl_checklist_relations\.json, row 1: 'true_caption' holds ''",
    ),
    (
        "hard-positives/swap",
        drop("bbox_y"),
        r"/data/visual_genome_attribution\.json, row 1: no field 'bbox_y'",
    ),
]


@pytest.mark.parametrize(("name", "change", "message"), ERRORS)
def test_errors_name_file_and_row(tmp_path, name, change, message):
    files = standin(name)
    change(files)
    with pytest.raises(ValueError, match=message):
        load(tmp_path, name, files)


@pytest.mark.parametrize(
    ("name", "content", "message"),
    [
        ("whatsup-a", b'[{"image_path": ', r"controlled_images_dataset\.json does not parse"),
        ("whatsup-a", b'["\xff"]', r"controlled_images_dataset\.json does not parse: .*utf-8"),
        ("whatsup-a", b'"rows"', r"controlled_images_dataset\.json holds no rows: 'rows'"),
        ("whatsup-a", b"[]", "'whatsup-a' has no items"),
        ("vsr", b'{"image": "a.jpg"}\n{"image"\n', r"train\.jsonl, row 1 does not parse"),
        ("vsr", b"{}\n\n{}\n", r"train\.jsonl, row 1 does not parse"),
    ],
)
def test_files_that_do_not_parse(tmp_path, name, content, message):
    root = write(tmp_path, standin(name))
    (root / next(iter(standin(name)))).write_bytes(content)
    with pytest.raises(ValueError, match=message):
        load_benchmark(name, root=root, complete=False)


def test_parquet_that_does_not_parse(tmp_path):
    (tmp_path / "visual_genome_relation.parquet").write_bytes(b"not parquet")
    with pytest.raises(ValueError, match=r"visual_genome_relation\.parquet does not parse"):
        load_benchmark("aro", root=tmp_path, complete=False)


def test_boxes_outside_the_picture_are_named_on_opening(tmp_path):
    draw(tmp_path, ["images/7.jpg"])
    files = {"visual_genome_relation.json": [aro("7", "dog", LEFT, "cup", (64, 0, 5, 5))]}
    benchmark = load(tmp_path, "aro", files)
    with pytest.raises(ValueError, match=r"box .* lies outside .*7\.jpg"):
        benchmark.images[0]


def test_unknown_names_list_the_known():
    with pytest.raises(ValueError, match="Unknown benchmark 'aro/depth'.*'whatsup-a'.*'aro/left-right'"):
        load_benchmark("aro/depth", root=".")


# --- the real annotation files --------------------------------------------------------------------


def test_real_vsr_horizontal(shared):
    benchmark = load_benchmark("vsr/horizontal", root=shared / "benchmarks/vsr")
    assert len(benchmark) == 1224 and benchmark.correct.sum() == 616
    assert Counter(benchmark.group.tolist()) == {
        "left of": 210, "right of": 113, "at the left side of": 421, "at the right side of": 480
    }  # fmt: skip
    details = benchmark.details
    assert Counter(details["reference_frame"][benchmark.correct == 1]) == {
        "viewer": 518,
        "object": 68,
        "either": 30,
    }
    assert details["reference_frame"][benchmark.correct == 0].isna().all()
    for (caption,), relation, subject, obj in zip(
        benchmark.captions, benchmark.group, details["subject"], details["object"], strict=True
    ):
        said = caption.lower()
        assert said.index(subject) < said.index(relation) < said.rindex(obj), caption
        assert parse_relation(caption).phrase == relation
    raw = [
        json.loads(line)
        for split in ("train", "dev", "test")
        for line in (shared / f"benchmarks/vsr/random/{split}.jsonl").read_text().splitlines()
    ]
    kept = [row for row in raw if row["relation"] in set(benchmark.group.tolist())]
    assert [row["caption"] for row in kept] == [caption for (caption,) in benchmark.captions]
    assert [row["label"] for row in kept] == benchmark.correct.tolist()

    partners = derangement(benchmark.source, benchmark.null_offset, benchmark.null_group)
    for j, partner in enumerate(partners):  # the published null, K = 101
        i = (j + 101) % len(kept)
        while kept[i]["image"] == kept[j]["image"]:
            i = (i + 1) % len(kept)
        assert partner == i


def test_real_vsr(shared):
    benchmark = load_benchmark("vsr", root=shared / "benchmarks/vsr")
    assert Counter(benchmark.details["split"]) == {"train": 7680, "dev": 1097, "test": 2195}
    assert len(set(benchmark.group.tolist())) == 66
    assert list(dict.fromkeys(benchmark.details["split"])) == ["train", "dev", "test"]
    votes = [
        vote for column in ("votes_true", "votes_false") for row in benchmark.details[column] for vote in row
    ]
    assert len(votes) == 33434 and {type(vote) for vote in votes} == {int}
    assert benchmark.images.paths[0] == shared / "benchmarks/vsr/images/000000296471.jpg"


def test_real_valse_relations(shared):
    raw = json.loads((shared / "benchmarks/valse/relations.json").read_text())
    benchmark = load_benchmark("valse/relations", root=shared / "benchmarks/valse")
    assert len(raw) == 614 and len(benchmark) == 535
    assert benchmark.details["row"].tolist() == [k for k, row in raw.items() if row["mturk"]["caption"] >= 2]
    assert benchmark.right_captions() == [raw[key]["caption"] for key in benchmark.details["row"]]
    assert (benchmark.details["votes_caption"] >= 2).all()


def test_real_sugarcrepe(shared):
    benchmark = load_benchmark("sugarcrepe", root=shared / "benchmarks/sugarcrepe")
    assert len(benchmark) == 7511 and benchmark.correct.sum() == 7511 // 2
    assert Counter(benchmark.group.tolist()) == {
        "add_att": 692, "add_obj": 2062, "replace_att": 788, "replace_obj": 1652, "replace_rel": 1406,
        "swap_att": 666, "swap_obj": 245,
    }  # fmt: skip
    assert benchmark.details["repeated"].sum() == 6
    swap = load_benchmark("sugarcrepe/swap_obj", root=shared / "benchmarks/sugarcrepe")
    assert len(swap) == 245 and "108" not in set(swap.details["row"]) and "245" in set(swap.details["row"])
    assert np.array_equal(swap.source, benchmark.source[benchmark.group == "swap_obj"])


def test_real_files_short_of_a_row_are_noticed(shared, tmp_path):
    raw = json.loads((shared / "benchmarks/sugarcrepe/add_att.json").read_text())
    del raw["5"]
    write(tmp_path, {"add_att.json": raw})
    with pytest.raises(ValueError, match=r"rows of add_att\.json: 691, where 692 are published"):
        load_benchmark("sugarcrepe/add_att", root=tmp_path)
    assert len(load_benchmark("sugarcrepe/add_att", root=tmp_path, complete=False)) == 691


# --- from files to the table ----------------------------------------------------------------------


def test_from_the_original_files_to_the_table(tmp_path, pocket):
    """Scenes written down as COCO-spatial would be give the same table as the scenes themselves."""
    scenes = load_benchmark("scenes/left-right", items=80)
    pictures = draw_scenes(scenes.scenes)
    rows = []
    for row, image in enumerate(scenes.image):
        right = scenes.correct[row]
        true, false = scenes.captions[row][right], scenes.captions[row][1 - right]
        rows.append([1000 + int(image), f"A photo of {true}", f"A photo of {false}"])
    write(tmp_path, {"data/coco_qa_two_obj.json": rows})
    for image, pixels in enumerate(pictures):
        path = tmp_path / f"data/val2017/{1000 + image:012d}.jpg"
        path.parent.mkdir(exist_ok=True)
        Image.fromarray(pixels).save(path, format="PNG")
    benchmark = load_benchmark("coco-spatial", root=tmp_path, complete=False)
    in_memory = Items(
        name="coco-spatial",
        images=pictures,
        image=scenes.image,
        captions=tuple((true, false) for _, true, false in rows),
        correct=np.zeros(80, dtype=int),
        group=benchmark.group,
    )
    readouts = [Deployed(), Displacement()]
    table = evaluate(pocket, benchmark, readouts)
    pd.testing.assert_frame_equal(table, evaluate(pocket, in_memory, readouts))
    assert table["accuracy"].iloc[1] > 0.7  # the displacement readout sees what the files say


def test_adr_covers_of_horizontal_vsr_what_was_published(shared):
    """1,201 of 1,224 statements have a subject and an object among their content words (Li et al. 2026)."""
    benchmark = load_benchmark("vsr/horizontal", root=shared / "benchmarks" / "vsr")
    captions = [caption for (caption,) in benchmark.captions]
    assert Displacement(words="content").covers(captions).sum() == 1201
    assert Displacement(words="phrases").covers(captions).sum() == 1224
