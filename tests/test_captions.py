"""Captions: parsing, swapping, flipping, paraphrasing."""

from __future__ import annotations

import json

import pytest

from readout_utils.captions import (
    OPPOSITES,
    RELATIONS,
    SYNONYMS,
    CaptionError,
    flip,
    orbit,
    paraphrases,
    parse_relation,
    parse_relations,
    relate,
    swap,
)


@pytest.mark.parametrize(
    ("caption", "expected"),
    [
        ("a dog to the left of a cup", ("dog", "to the left of", "cup")),
        (
            "An apple is on the left side of the dining table.",
            ("apple", "on the left side of", "dining table"),
        ),
        ("A photo of a person above a tv", ("person", "above", "tv")),
        ("The ox is at the right side of the tv.", ("ox", "at the right side of", "tv")),
        ("the man in the red shirt is behind the dog", ("red shirt", "behind", "dog")),
        ("a cup of coffee in front of the laptop", ("cup of coffee", "in front of", "laptop")),
        ("there is a man riding a horse", ("man", "riding", "horse")),
        ("a man is riding on a horse and a dog", ("man", "riding on", "horse")),
        ("Dog left of cat", ("dog", "left of", "cat")),
        ("The man is walking behind the concession bus.", ("man", "behind", "concession bus")),
        ("A dog is directly above the cup", ("dog", "above", "cup")),
        ("a dog sitting on the left side of a bench", ("dog", "on the left side of", "bench")),
        ("the cup is on the far left of the table", ("cup", "on the far left of", "table")),
        ("a carry-on bag to the  left\nof a dog", ("carry-on bag", "to the left of", "dog")),
        ("left of a cup from the viewer", None),
        ("a fox left of a cup from the viewer", ("fox", "left of", "cup")),
        ("the jack-o'-lantern under the t-shirt", ("jack-o'-lantern", "under", "t-shirt")),
    ],
)
def test_parse(caption, expected):
    if expected is None:
        with pytest.raises(CaptionError):
            parse_relation(caption)
        return
    relation = parse_relation(caption)
    assert (relation.subject, relation.phrase, relation.object) == expected
    assert relation.axis == RELATIONS[expected[1]]
    assert " ".join(caption[slice(*relation.phrase_span)].lower().split()) == expected[1]
    assert caption[slice(*relation.subject_span)].lower().endswith(expected[0])


def test_several_relations():
    one, two = parse_relations("a dog above a cup and a cat to the left of a tree")
    assert (one.subject, one.object, two.subject, two.object) == ("dog", "cup", "cat", "tree")
    with pytest.raises(CaptionError, match="holds 2 relations"):
        parse_relation("a dog above a cup and a cat below a tree")


@pytest.mark.parametrize(
    ("caption", "message"),
    [
        ("a dog beside a cup", "No relation phrase"),
        ("to the left of a cup", "No noun phrase before"),
        ("a dog above", "No noun phrase after"),
        ("a cup on the left", "No noun phrase after 'on'"),
        ("the dog is not left of the cup", "is negated"),
        ("", "non-empty text"),
        (None, "non-empty text"),
    ],
)
def test_what_does_not_parse_says_so(caption, message):
    with pytest.raises(CaptionError, match=message):
        parse_relations(caption)


def test_words_are_not_found_inside_words():
    with pytest.raises(CaptionError, match="No relation phrase"):
        parse_relations("an onion, an overcoat")


def test_orbit():
    assert orbit("An apple is above the dog.") == (
        "An apple is above the dog.",
        "An apple is below the dog.",
        "The dog is above an apple.",
        "The dog is below an apple.",
    )


@pytest.mark.parametrize("phrase", sorted(RELATIONS))
def test_flip_and_swap_are_involutions(phrase):
    caption = relate("dog", phrase, "owl")
    assert swap(swap(caption)) == caption
    assert flip(swap(caption)) == swap(flip(caption))
    assert parse_relation(flip(caption)).axis == tuple(-c for c in RELATIONS[phrase])
    if OPPOSITES[OPPOSITES[phrase]] == phrase:
        assert flip(flip(caption)) == caption


def test_swap_keeps_capitals_digits_and_accents():
    assert swap("The dog is above an owl.") == "An owl is above the dog."
    assert swap("3 Dogs left of a cup") == "a cup left of 3 Dogs"
    assert parse_relation("a cafe\u0301 table above a dog").subject == "caf\u00e9 table"
    assert swap("a cafe\u0301 table above a dog") == "a dog above a caf\u00e9 table"


def test_paraphrases_mean_the_same():
    for phrase in RELATIONS:
        for other in SYNONYMS[phrase]:
            assert RELATIONS[other] == RELATIONS[phrase] and other != phrase
    assert "a dog on the left of a cup" in paraphrases("a dog to the left of a cup")
    assert paraphrases("a dog behind a cup") == []


def test_relate_knows_its_phrases():
    assert relate("owl", "above", "dog") == "an owl above a dog"
    with pytest.raises(CaptionError, match="Unknown relation phrase 'near'"):
        relate("owl", "near", "dog")


def test_every_vsr_horizontal_caption_parses(shared):
    wanted = {"left of": 0, "right of": 0, "at the left side of": 0, "at the right side of": 0}
    for split in ("train", "dev", "test"):
        for line in (shared / "benchmarks" / "vsr" / "random" / f"{split}.jsonl").open():
            row = json.loads(line)
            if row["relation"] in wanted:
                relation = parse_relation(row["caption"])
                wanted[row["relation"]] += relation.phrase == row["relation"]
    assert list(wanted.values()) == [210, 113, 421, 480]
