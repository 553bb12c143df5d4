"""Variants of captions that keep the meaning or do not, scenes for them, and the metrics over both."""

from __future__ import annotations

import hashlib
import itertools
import re
import zlib

import numpy as np
import pandas as pd
import pytest
from hypothesis import assume, given, settings
from hypothesis import strategies as st

from readout_utils.captions import (
    ATTRIBUTE_OPPOSITES,
    ATTRIBUTE_SYNONYMS,
    NEGATIVES,
    OPPOSITES,
    POSITIVES,
    RELATIONS,
    CaptionError,
    Variant,
    article,
    attribute_opposite,
    attribute_synonym,
    invert_roles,
    parse_conjunction,
    rebind,
    reorder,
    replace_attribute_by_opposite,
    replace_attributes_by_synonyms,
    replace_noun,
    variants,
)
from readout_utils.deflation import TIE
from readout_utils.encoders import WordTokenizer
from readout_utils.evaluation import encode_benchmark, score_items
from readout_utils.hard_positives import (
    CHANCE,
    PATTERNS,
    hard_positive_items,
    outcomes,
    scene_hard_positives,
    summarise,
)
from readout_utils.readouts import Deployed
from readout_utils.scenes import (
    BIG,
    HELD_OUT_STYLE,
    NOUNS,
    QUESTIONS,
    STYLES,
    TRAINING_STYLES,
    described_scenes,
    draw_scenes,
    held_out_pairs,
    vocabulary,
)

NAMES = list(NOUNS)

# --- what is true, said a second time and without the package's parser ----------------------------

AXES = {"left": (0, -1), "right": (0, 1), "above": (1, -1), "over": (1, -1), "below": (1, 1), "under": (1, 1)}
AXES |= {
    "top": (1, -1),
    "on": (1, -1),
    "beneath": (1, 1),
    "underneath": (1, 1),
    "front": (1, 1),
    "behind": (1, -1),
}


def split(text: str) -> list[tuple[str, str]]:
    """(attribute, noun) of a text such as "big ice cream"."""
    first, _, rest = text.partition(" ")
    return (first, rest) if first in ("big", "large", "small", "little") else ("", text)


def is_true(text: str, things: dict[str, tuple[float, float, float]]) -> bool:
    """Whether a caption holds of things at (x, y) of a size; it reads "a THING phrase a THING"."""
    noun = "|".join(sorted(NAMES, key=len, reverse=True))
    found = re.fullmatch(rf"an? ((?:[a-z]+ )?(?:{noun})) ((?!a )[a-z ]+?) an? ((?:[a-z]+ )?(?:{noun}))", text)
    assert found, text
    one, phrase, other = found.groups()
    here = [split(one), split(other)]
    if any(noun not in things for _, noun in here):
        return False
    sizes = [size for *_, size in things.values()]
    for attribute, noun in here:
        if attribute and things[noun][2] != (max if attribute in ("big", "large") else min)(sizes):
            return False
    if phrase == "and":
        return True
    axis, sign = next(AXES[word] for word in AXES if word in phrase.split())
    return sign * (things[here[0][1]][axis] - things[here[1][1]][axis]) > 0


nouns = st.lists(st.sampled_from(NAMES), min_size=3, max_size=3, unique=True)
attributes = st.sampled_from(
    [("", ""), ("big", "small"), ("little", "large"), ("small", "big"), ("large", "little")]
)
phrases = st.sampled_from(
    ["and", *(phrase for phrase in RELATIONS if not phrase.startswith(("upon", "atop", "riding")))]
)


def caption_of(names, sizes, phrase) -> str:
    one, other = (f"{size} {name}".strip() for size, name in zip(sizes, names, strict=False))
    return f"{article(one)} {phrase} {article(other)}"


@settings(max_examples=300, deadline=None)
@given(nouns, attributes, phrases, st.tuples(*[st.floats(-1, 1)] * 4), st.booleans())
def test_positives_are_true_and_negatives_false(names, sizes, phrase, places, first_is_big):
    """In a world of two things, wherever the caption is true of it."""
    x, y, u, v = places
    assume(abs(x - u) > 1e-3 and abs(y - v) > 1e-3)
    things = {names[0]: (x, y, 1 + first_is_big), names[1]: (u, v, 2 - first_is_big)}
    caption = caption_of(names, sizes, phrase)
    made = variants(caption, names[2])
    kinds = {variant.kind for variant in made}
    assert kinds <= set(NEGATIVES + POSITIVES)
    assert all(variant.positive == (variant.kind in POSITIVES) for variant in made)
    assert len({variant.text for variant in made} - {caption}) == len({(v.kind, v.text) for v in made})
    assert ("nouns swapped" in kinds) == ("roles inverted" in kinds) == (phrase != "and")
    assert ("conjunction reordered" in kinds) == (phrase == "and")
    assert ("attribute bound to the wrong noun" in kinds) == bool(sizes[0])
    for variant in made:
        for determiner, following in re.findall(r"\b(an?) ([a-z])", variant.text):
            assert determiner == ("an" if following in "aeiou" else "a"), variant
        if is_true(caption, things):
            assert is_true(variant.text, things) == variant.positive, (caption, variant)


@settings(deadline=None)
@given(nouns, attributes, phrases)
def test_edits_undo_themselves(names, sizes, phrase):
    caption = caption_of(names, sizes, phrase)
    there_and_back = replace_noun(replace_noun(caption, names[0], names[2]), names[2], names[0])
    assert there_and_back == caption
    if phrase == "and":
        assert reorder(reorder(caption)) == caption != reorder(caption)
    elif OPPOSITES[OPPOSITES[phrase]] == phrase:
        assert invert_roles(invert_roles(caption)) == caption != invert_roles(caption)
    if sizes[0]:
        assert rebind(rebind(caption)) == caption != rebind(caption)
        assert replace_attributes_by_synonyms(replace_attributes_by_synonyms(caption)) == caption
        assert caption in replace_attribute_by_opposite(replace_attribute_by_opposite(caption)[0])


@pytest.mark.parametrize(
    ("caption", "expected"),
    [
        (
            "A big dog is above an apple.",
            {
                ("nouns swapped", "An apple is above a big dog."),
                ("relation flipped", "A big dog is below an apple."),
                ("attribute replaced by its opposite", "A small dog is above an apple."),
                ("noun replaced", "A big owl is above an apple."),
                ("noun replaced", "A big dog is above an owl."),
                ("relation paraphrased", "A big dog is over an apple."),
                ("roles inverted", "An apple is below a big dog."),
                ("attribute synonym", "A large dog is above an apple."),
            },
        ),
        (
            "a photo of a big dog and a small cup",
            {
                ("attribute bound to the wrong noun", "a photo of a small dog and a big cup"),
                ("attribute replaced by its opposite", "a photo of a small dog and a small cup"),
                ("attribute replaced by its opposite", "a photo of a big dog and a big cup"),
                ("noun replaced", "a photo of a big owl and a small cup"),
                ("noun replaced", "a photo of a big dog and a small owl"),
                ("attribute synonym", "a photo of a large dog and a little cup"),
                ("conjunction reordered", "a photo of a small cup and a big dog"),
            },
        ),
        (
            "A tv, the ice cream, and an apple",
            {
                ("noun replaced", "An owl, the ice cream, and an apple"),
                ("noun replaced", "A tv, the owl, and an apple"),
                ("noun replaced", "A tv, the ice cream, and an owl"),
                ("conjunction reordered", "An apple, the ice cream, and a tv"),
            },
        ),
        # what would say the same is no negative
        (
            "a dog behind a dog",
            {("noun replaced", "an owl behind an owl"), ("roles inverted", "a dog in front of a dog")},
        ),
        (
            "a big dog above a large dog",
            {
                ("attribute replaced by its opposite", "a small dog above a large dog"),
                ("attribute replaced by its opposite", "a big dog above a little dog"),
                ("noun replaced", "a big owl above a large owl"),
                ("relation paraphrased", "a big dog over a large dog"),
                ("roles inverted", "a large dog below a big dog"),
                ("attribute synonym", "a large dog above a big dog"),
            },
        ),
        (
            "a big dog and a small dog",  # "a small dog and a small dog" follows from it
            {
                ("noun replaced", "a big owl and a small owl"),
                ("attribute synonym", "a large dog and a little dog"),
                ("conjunction reordered", "a small dog and a big dog"),
            },
        ),
        (
            "a big dog above a small dog",
            {
                ("nouns swapped", "a small dog above a big dog"),
                ("relation flipped", "a big dog below a small dog"),
                ("attribute bound to the wrong noun", "a small dog above a big dog"),
                ("attribute replaced by its opposite", "a small dog above a small dog"),
                ("attribute replaced by its opposite", "a big dog above a big dog"),
                ("noun replaced", "a big owl above a small owl"),
                ("relation paraphrased", "a big dog over a small dog"),
                ("roles inverted", "a small dog below a big dog"),
                ("attribute synonym", "a large dog above a little dog"),
            },
        ),
        ("a dog and a dog", {("noun replaced", "an owl and an owl")}),
        # nouns that cannot change places
        (
            "the man in the red shirt is behind the dog",
            {
                ("relation flipped", "the man in the red shirt is in front of the dog"),
                ("noun replaced", "the man in the owl is behind the dog"),
                ("noun replaced", "the man in the red shirt is behind the owl"),
            },
        ),
        (
            "a man walking behind a bus",
            {
                ("nouns swapped", "a bus walking behind a man"),
                ("relation flipped", "a man walking in front of a bus"),
                ("noun replaced", "an owl walking behind a bus"),
                ("noun replaced", "a man walking behind an owl"),
            },
        ),
        (
            "a dog above a cup and a tree",
            {
                ("relation flipped", "a dog below a cup and a tree"),
                ("noun replaced", "an owl above a cup and a tree"),
                ("noun replaced", "a dog above an owl and a tree"),
                ("relation paraphrased", "a dog over a cup and a tree"),
            },
        ),
        (
            "a man and his dog",
            {("noun replaced", "an owl and his dog"), ("noun replaced", "a man and his owl")},
        ),
        (
            "a dog behind another dog",
            {("noun replaced", "an owl behind another owl")},
        ),
    ],
)
def test_variants(caption, expected):
    made = variants(caption, "owl")
    assert {(variant.kind, variant.text) for variant in made} == expected
    assert len(made) == len(expected)
    assert made == variants(caption, lambda noun: "owl")
    without = [variant for variant in made if variant.kind != "noun replaced"]
    assert variants(caption) == variants(caption, lambda noun: None) == without


def test_a_replacement_may_depend_on_the_noun():
    assert variants("a dog and a cup", {"cup": "alarm clock"}.get) == [
        Variant("noun replaced", "a dog and an alarm clock", False),
        Variant("conjunction reordered", "a cup and a dog", True),
    ]
    assert replace_noun("Dog left of cat", "dog", "owl") == "Owl left of cat"


def test_rebinding_takes_the_first_attributes_that_differ():
    assert rebind("a big dog, a cup, a large tree and a little owl") == (
        "a little dog, a cup, a large tree and a big owl"
    )
    assert rebind("Small dog left of big cup") == "Big dog left of small cup"


def test_articles_agree_with_attributes(monkeypatch):
    """Also with ones that start with a vowel, should the lexicon grow."""
    for word, other in (("old", "young"), ("young", "old")):
        monkeypatch.setitem(ATTRIBUTE_OPPOSITES, word, other)
    monkeypatch.setitem(ATTRIBUTE_SYNONYMS, "old", "aged")
    monkeypatch.setitem(ATTRIBUTE_SYNONYMS, "young", "youthful")
    assert rebind("An old dog and a young cup") == "A young dog and an old cup"


def test_parse_conjunction():
    text = "There is a big  ice cream,\nan owl and the Cup."
    found = parse_conjunction(text)
    assert [(p.determiner, p.attribute, p.noun) for p in found] == [
        ("a", "big", "ice cream"), ("an", "", "owl"), ("the", "", "cup")
    ]  # fmt: skip
    assert [text[slice(*p.span)] for p in found] == ["a big  ice cream", "an owl", "the Cup"]
    assert [text[slice(*p.noun_span)] for p in found] == ["ice cream", "owl", "Cup"]
    assert text[slice(*found[0].attribute_span)] == "big"
    assert text[slice(*found[2].determiner_span)] == "the"
    assert parse_conjunction("a big and a cup")[0].noun == "big"  # a word alone is the noun


@pytest.mark.parametrize(
    ("call", "message"),
    [
        (lambda: variants("a dog"), "'a dog' is no conjunction of noun phrases: no 'and'"),
        (lambda: variants(None), "non-empty text"),
        (lambda: variants("a dog above a cup and a cat below a tree"), "holds 2 relations"),
        (lambda: variants("a dog is not above a cup"), "negated"),
        (lambda: variants("a dog, a cup"), "no 'and'"),
        (lambda: parse_conjunction("a dog above a cup"), "it states a relation \\('above'\\)"),
        (lambda: parse_conjunction("a black and white dog and a cup"), "'white dog' does not start with"),
        (lambda: parse_conjunction("no dog and a cup"), "'no dog' does not start with"),
        (lambda: parse_conjunction("a dog near a cup and a cat"), "'near' in 'a dog near a cup'"),
        (lambda: parse_conjunction("a dog or a cup and a cat"), "'or' in"),
        (lambda: parse_conjunction("a dog and a cup; a cat"), "'cup;' is no word"),
        (lambda: parse_conjunction("a dog and the"), "'the' names nothing"),
        (lambda: parse_conjunction("a dog and"), "no 'and'"),
        (lambda: reorder("a dog and a dog"), "reads the same from its end"),
        (lambda: reorder("a man and his dog"), "'his' in 'a man and his dog' points back"),
        (lambda: invert_roles("a man walking behind a bus"), "'walking' in .* subject alone"),
        (lambda: invert_roles("a man in a hat behind a bus"), "says more than its one relation \\('a'\\)"),
        (lambda: invert_roles("a dog and a cup"), "No relation phrase in 'a dog and a cup'"),
        (lambda: rebind("a big dog and a large cup"), "'a big dog and a large cup' has no two attributes"),
        (lambda: rebind("a red dog and a small cup"), "no two attributes .* big, small, large, little"),
        (lambda: rebind("a big dog and a small dog"), "both attributes at 'dog'"),
        (lambda: replace_attributes_by_synonyms("a dog and a cup"), "has an attribute. Known.* big"),
        (lambda: replace_attribute_by_opposite("a dog and a cup"), "No noun of 'a dog and a cup'"),
        (lambda: attribute_opposite("red"), "Unknown attribute 'red'. Known attributes: big, small"),
        (lambda: attribute_synonym("huge"), "Unknown attribute 'huge'. Known attributes: big, large"),
        (lambda: replace_noun("a dog and a cup", "cat", "owl"), "names no 'cat', only 'dog', 'cup'"),
        (lambda: replace_noun("a dog and a cup", "dog", "cup"), "names 'cup' already"),
        (lambda: variants("a dog and a cup", "cup"), "names 'cup' already"),
        (lambda: variants("a dog and a cup", "owl above a tree"), "'owl above a tree' is no noun"),
        (lambda: replace_noun("a dog and a cup", "dog", "owl and a cat"), "is no noun"),
        (lambda: replace_noun("a dog and a cup", "dog", "big owl"), "is no noun"),
        (lambda: replace_noun("a dog and a cup", "dog", " "), "is no noun"),
    ],
)
def test_what_has_no_variant_says_so(call, message):
    with pytest.raises(CaptionError, match=message):
        call()


def test_attributes_pair_up():
    for lexicon in (ATTRIBUTE_OPPOSITES, ATTRIBUTE_SYNONYMS):
        assert all(lexicon[lexicon[word]] == word != lexicon[word] for word in lexicon)
    for word in ATTRIBUTE_OPPOSITES:
        opposite = attribute_opposite(attribute_synonym(word))
        assert opposite == attribute_synonym(attribute_opposite(word)) != attribute_opposite(word)


# --- scenes ---------------------------------------------------------------------------------------


def things_of(scenes, index) -> dict[str, tuple[int, int, int]]:
    return {
        NAMES[noun]: (int(x), int(y), int(size))
        for noun, x, y, size in zip(
            scenes.noun[index], scenes.x[index], scenes.y[index], scenes.size[index], strict=True
        )
    }


@pytest.mark.parametrize("axis", list(QUESTIONS))
@pytest.mark.parametrize("pairs", ["training", "held-out", "all"])
def test_described_scenes(axis, pairs):
    scenes = described_scenes(axis, 1600, 3, pairs=pairs)
    noun = scenes.noun.reshape(-1, 4, 2)
    assert (noun[:, 0] == noun[:, 1]).all() and (noun[:, 2] == noun[:, 3]).all()
    assert ((noun[:, 0] == noun[:, 2]).sum(1) == 1).all()
    assert all(len(set(block.ravel())) == 3 for block in noun)
    assert 0.4 < (noun[:, 0, 0] == noun[:, 2, 0]).mean() < 0.6  # either column holds the shared noun
    held = held_out_pairs()[scenes.noun[:, 0], scenes.noun[:, 1]]
    assert {"training": not held.any(), "held-out": held.all(), "all": 0 < held.mean() < 0.2}[pairs]
    assert len({tuple(sorted(pair)) for pair in noun[:, 0].tolist()}) == (400 if pairs != "held-out" else 212)

    small, big = np.sort(scenes.size, axis=1).T
    assert set(small) == {24, 25} and set(big) == {31, 32} and small.max() < BIG <= big.min()
    for centre in (scenes.x, scenes.y):
        low = centre - scenes.size // 2
        assert low.min() >= 0 and (low + scenes.size).max() <= 64
    along, across = (scenes.x, scenes.y) if axis == "left-right" else (scenes.y, scenes.x)
    low = along - scenes.size // 2
    gap = np.maximum(low[:, 0] - (low + scenes.size)[:, 1], low[:, 1] - (low + scenes.size)[:, 0])
    assert gap.min() >= 0 and gap.max() >= 5
    assert abs(np.corrcoef(along[:, 0], across[:, 0])[0, 1]) < 0.1
    first_ahead, first_big = along[:, 0] < along[:, 1], scenes.size[:, 0] > scenes.size[:, 1]
    for block in range(0, 1600, 4):
        four = list(zip(first_ahead[block : block + 4], first_big[block : block + 4], strict=True))
        assert set(four) == set(itertools.product([True, False], repeat=2))
        assert first_ahead[block] != first_ahead[block + 1] and first_big[block] != first_big[block + 1]


def test_described_scenes_are_pinned_and_seeded():
    """The same pixels on every machine; a change here changes every result."""
    pixels = draw_scenes(described_scenes("above-below", 32, 7, styles=(HELD_OUT_STYLE,)))
    assert hashlib.sha256(pixels.tobytes()).hexdigest()[:16] == "07b80072b8c855fc"
    one, other = (described_scenes("left-right", 8, seed) for seed in (0, 1))
    assert not np.array_equal(one.noun, other.noun)
    assert set(np.unique(one.style)) <= set(range(len(TRAINING_STYLES)))


@pytest.mark.parametrize(
    ("call", "message"),
    [
        (lambda: described_scenes("near-far", 4, 0), "Unknown axis 'near-far'"),
        (lambda: described_scenes("left-right", 6, 0), "6 is no multiple of four"),
        (lambda: described_scenes("left-right", 0, 0), "at least one"),
        (lambda: described_scenes("left-right", 4, 0, pairs="none"), "'held-out' or 'all', not 'none'"),
        (lambda: described_scenes("left-right", 4, 0, styles=("blob",)), "Unknown drawing style 'blob'"),
        (lambda: described_scenes("left-right", 4, 0, small=(24, 28)), "below and from 28 px up"),
        (lambda: described_scenes("left-right", 4, 0, small=(24, 26)), "6 px apart"),
        (lambda: described_scenes("left-right", 4, 0, big=(31, 33)), "between 4 and 32"),
        (lambda: scene_hard_positives(0, 0), "positive multiple of four items, not 0"),
        (lambda: scene_hard_positives(10, 0), "positive multiple of four items, not 10"),
        (
            lambda: hard_positive_items(
                "left-right", described_scenes("left-right", 4, 0), "nouns swapped", ""
            ),
            "No pattern 'nouns swapped', '' .*'noun replaced', 'conjunction reordered'",
        ),
        (
            lambda: hard_positive_items("left-right", described_scenes("above-below", 40, 0), *PATTERNS[0]),
            "described_scenes\\('left-right', ...\\)",
        ),
        (
            lambda: hard_positive_items(
                "left-right", described_scenes("left-right", 8, 0)[2:6], *PATTERNS[1]
            ),
            "no left-right blocks of four",
        ),
        (
            lambda: hard_positive_items("left-right", described_scenes("left-right", 8, 0)[:6], *PATTERNS[0]),
            "no left-right blocks of four",
        ),
        (
            lambda: hard_positive_items("across", described_scenes("left-right", 8, 0), *PATTERNS[0]),
            "Unknown axis 'across'",
        ),
    ],
)
def test_bad_input_is_named(call, message):
    with pytest.raises(ValueError, match=message):
        call()


# --- items ----------------------------------------------------------------------------------------


@pytest.fixture(scope="module")
def items():
    return scene_hard_positives(288, 5)


@pytest.mark.parametrize("pairs", ["training", "held-out"])
@pytest.mark.parametrize("styles", [TRAINING_STYLES, (HELD_OUT_STYLE,)])
def test_captions_are_true_and_false_of_their_scenes(pairs, styles):
    benchmark = scene_hard_positives(720, 1, pairs=pairs, styles=styles)
    assert len(benchmark) == len(benchmark.images) == 720 and not benchmark.correct.any()
    assert {STYLES[style] for style in np.unique(benchmark.scenes.style)} <= set(styles)
    held = held_out_pairs()
    for row, captions in enumerate(benchmark.captions):
        things = things_of(benchmark.scenes, benchmark.image[row])
        assert [is_true(text, things) for text in captions] == [True, True, False], (row, captions)
        for text in captions:  # the false ones too are about pairs of the kind asked for
            a, b = (NAMES.index(name) for name in nouns_in(text))
            assert held[a, b] == (pairs == "held-out")
    assert np.array_equal(benchmark.images, draw_scenes(benchmark.scenes))


def nouns_in(text: str) -> list[str]:
    return re.findall(rf"\b({'|'.join(sorted(NAMES, key=len, reverse=True))})\b", text)


def test_text_alone_tells_nothing(items):
    """Within a block each (c, c_n) comes the other way round too."""
    for block in np.unique(items.source):
        rows = [items.captions[row] for row in np.flatnonzero(items.source == block)]
        assert len(rows) == 4
        assert sorted((c, n) for c, _, n in rows) == sorted((n, c) for c, _, n in rows)
        assert len({items.group[row] for row in np.flatnonzero(items.source == block)}) == 1
    for salt in range(5):
        scores = [[zlib.crc32(f"{salt}{text}".encode()) for text in row] for row in items.captions]
        table = outcomes(scores)
        assert table.original.mean() == 0.5 and table.augmented.mean() < 0.5


def test_patterns_are_what_they_say(items):
    counts = pd.crosstab(items.group, items.details.axis)
    assert counts.shape == (9, 2) and (counts.to_numpy() == 16).all()
    for row, (caption, positive, negative) in enumerate(items.captions):
        detail = items.details.iloc[row]
        assert items.group[row] == f"{detail.positive} / {detail.negative}"
        assert (detail.negative, detail.positive) in PATTERNS
        before, after = nouns_in(caption), nouns_in(negative)
        gone, come = (
            [noun for noun in these if noun not in those]
            for these, those in ((before, after), (after, before))
        )
        made = variants(caption, dict(zip(gone, come, strict=True)).get)
        assert Variant(detail.positive, positive, True) in made
        assert Variant(detail.negative, negative, False) in made
        relational = detail.positive in ("relation paraphrased", "roles inverted")
        assert relational == any(f" {phrase} " in caption for phrase in QUESTIONS[detail.axis])
        assert ("bound" in detail.negative) == bool(re.search("big|small|large|little", caption))


def test_captions_vary(items):
    texts = " ".join(text for row in items.captions for text in row)
    for phrase in ("to the left of", "on the left of", "on the left side of", "over", "under", "below"):
        assert f" {phrase} " in texts
    originals = [row[0] for row in items.captions]
    assert {"big", "small"} <= set(" ".join(originals).split())
    # the bigger, and the one ahead, is named first as often as the other
    bigger, ahead = [], []
    for row, caption in enumerate(originals):
        things = things_of(items.scenes, row)
        one, other = (things[noun] for noun in nouns_in(caption))
        axis = ["left-right", "above-below"].index(items.details.axis[row])
        bigger.append(one[2] > other[2])
        ahead.append(one[axis] < other[axis])
    for group in np.unique(items.group):
        assert np.mean(np.array(bigger)[items.group == group]) == 0.5
        assert np.mean(np.array(ahead)[items.group == group]) == 0.5


def test_the_pocket_encoder_reads_every_caption(items):
    words, tokenizer = set(vocabulary()), WordTokenizer(vocabulary(), 18)
    texts = sorted({text for row in items.captions for text in row})
    assert all(set(text.split()) <= words for text in texts)
    assert tokenizer(texts).shape == (len(texts), 18)


def test_several_patterns_of_the_same_scenes():
    scenes = described_scenes("above-below", 24, 2)
    for negative, positive in PATTERNS:
        benchmark = hard_positive_items("above-below", scenes, negative, positive, "mine")
        assert benchmark.name == "mine" and len(benchmark) == 24
        assert set(benchmark.group) == {f"{positive} / {negative}"}
        assert np.array_equal(benchmark.source, np.repeat(np.arange(6), 4))
        for row, captions in enumerate(benchmark.captions):
            assert [is_true(text, things_of(scenes, row)) for text in captions] == [True, True, False]


def test_items_are_fixed_by_their_seed():
    one, again, other = (scene_hard_positives(76, seed) for seed in (0, 0, 1))
    assert one.captions == again.captions and np.array_equal(one.images, again.images)
    assert one.captions != other.captions
    assert len(scene_hard_positives(4, 0)) == 4
    text = "\n".join("|".join(row) for row in one.captions)
    assert hashlib.sha256(text.encode()).hexdigest()[:16] == "6090fd9372665b72"


def test_a_readout_on_the_benchmark(pocket):
    benchmark = scene_hard_positives(72, 0)
    scores = score_items(pocket, benchmark, Deployed(), encode_benchmark(pocket, benchmark))
    table = summarise(scores, benchmark.source, benchmark.group)
    assert len(table) == 11 and (table.n[:-2] == 8).all()
    replaced = [name for name in table.index if name.endswith("noun replaced")]
    swapped = [name for name in table.index if name.endswith("nouns swapped")]
    # the encoder sees what is there, and not what is where
    assert table.augmented[replaced].mean() > 0.8 > table.augmented[swapped].mean()


# --- metrics --------------------------------------------------------------------------------------


def brute_force(scores) -> dict[str, float]:
    """The definitions, read aloud."""
    counts = dict.fromkeys(["original", "augmented", "drop", "brittleness", "ties"], 0)
    for c, p, n in scores:
        original = c > n
        augmented = c > n and p > n
        counts["original"] += original
        counts["augmented"] += augmented
        counts["drop"] += original - augmented
        counts["brittleness"] += (c > n > p) or (p > n > c)
        counts["ties"] += c == n or p == n
    return {name: count / len(scores) for name, count in counts.items()}


rows = st.lists(st.tuples(*[st.integers(0, 3)] * 3), min_size=1, max_size=40)


@settings(deadline=None)
@given(rows, st.floats(-0.4, 0.4))
def test_outcomes_against_the_definitions(scores, noise):
    jitter = noise * TIE * np.array([[1, 0, -1]])  # within the tolerance: changes nothing
    table = outcomes(np.array(scores, dtype=float) + jitter)
    assert table.mean().to_dict() == pytest.approx(brute_force(scores))
    assert list(table) == ["original", "augmented", "drop", "brittleness", "ties"]


@settings(max_examples=40, deadline=None)
@given(rows)
def test_summary_against_the_definitions(scores):
    group = np.array(["one", "two", "three"])[np.arange(len(scores)) ** 2 % 3]
    table = summarise(scores, np.arange(len(scores)), group)
    by_name = {name: [s for s, g in zip(scores, group, strict=True) if g == name] for name in set(group)}
    expected = {name: brute_force(part) for name, part in by_name.items()}
    macro = {m: np.mean([part[m] for part in expected.values()]) for m in brute_force(scores)}
    expected |= {"micro": brute_force(scores), "macro": macro}
    assert list(table.index) == [*sorted(by_name), "micro", "macro"]
    for name, values in expected.items():
        assert table.loc[name, list(values)].to_dict() == pytest.approx(values)
        assert table.n[name] == len(by_name.get(name, scores))


def test_chance():
    scores = np.random.default_rng(0).random((60_000, 3))
    table = outcomes(scores).mean()
    for metric, value in CHANCE.items():
        assert table[metric] == pytest.approx(value, abs=0.008)
    assert table.ties == 0


def test_a_constant_scorer_wins_nothing():
    table = summarise(np.full((6, 3), 0.2), np.arange(6))
    assert list(table.index) == ["micro"]
    assert table.ties["micro"] == 1
    assert not table[list(CHANCE)].to_numpy().any()


def test_each_order_of_three_scores():
    """Columns c, c_p, c_n."""
    table = outcomes([[3, 2, 1], [2, 3, 1], [3, 1, 2], [1, 3, 2], [1, 2, 3], [2, 1, 3], [2, 2, 1], [2, 1, 1]])
    assert table.original.tolist() == [1, 1, 1, 0, 0, 0, 1, 1]
    assert table.augmented.tolist() == [1, 1, 0, 0, 0, 0, 1, 0]
    assert table.brittleness.tolist() == [0, 0, 1, 1, 0, 0, 0, 0]
    assert table.ties.tolist() == [0, 0, 0, 0, 0, 0, 0, 1]


def test_intervals_are_paired_and_resample_sources():
    rng = np.random.default_rng(1)
    n = 400
    good = rng.random(n) < 0.5
    scores = np.c_[good, good, np.full(n, 0.5)]  # c_p always falls with c: no drop, whatever is drawn
    table = summarise(scores, np.arange(n)).loc["micro"]
    assert table.drop_low == table.drop_high == table["drop"] == 0
    assert 0.08 < table.original_high - table.original_low < 0.12  # 2 * 1.96 * 0.5 / 20 = 0.098
    assert table.original_low < table.original < table.original_high
    copies = summarise(np.repeat(scores, 9, axis=0), np.repeat(np.arange(n), 9)).loc["micro"]
    wide = copies.original_high - copies.original_low
    assert wide == pytest.approx(table.original_high - table.original_low, rel=1e-6)
    as_if = summarise(np.repeat(scores, 9, axis=0), np.arange(9 * n)).loc["micro"]
    assert as_if.original_high - as_if.original_low < wide / 2.5


def test_macro_interval():
    """A small group weighs as much as a large one, and its uncertainty shows."""
    rng = np.random.default_rng(2)
    large, small = rng.random((2000, 3)), rng.random((40, 3))
    scores, group = np.r_[large, small], np.r_[np.zeros(2000), np.ones(40)]
    table = summarise(scores, np.arange(2040), group)
    width = table.original_high - table.original_low
    # half of the small group's half-width and half of the large group's, in quadrature
    expected = np.hypot(width[0.0], width[1.0]) / 2
    assert width["macro"] == pytest.approx(expected, rel=0.1)
    assert width["micro"] < width["macro"] / 2
    alone = summarise(large, np.arange(2000), np.zeros(2000))
    for end in ("low", "high"):  # one group: two bootstraps of the same mean
        assert alone.loc["macro", f"augmented_{end}"] == pytest.approx(
            alone.loc["micro", f"augmented_{end}"], abs=0.004
        )


def test_order_of_items_changes_nothing():
    rng = np.random.default_rng(3)
    scores, source, group = rng.random((90, 3)), np.arange(90) // 3, np.arange(90) % 4
    order = rng.permutation(90)
    pd.testing.assert_frame_equal(
        summarise(scores, source, group), summarise(scores[order], source[order], group[order])
    )


@pytest.mark.parametrize(
    ("call", "message"),
    [
        (lambda: outcomes(np.zeros((4, 2))), "not \\(4, 2\\)"),
        (lambda: outcomes(np.zeros((0, 3))), "not \\(0, 3\\)"),
        (lambda: outcomes(np.zeros(3)), "columns caption, hard positive, hard negative"),
        (lambda: outcomes([[1, 2, 3], [1, np.nan, 2]]), "item 1 hold NaN"),
        (lambda: outcomes([[1, np.inf, 2]]), "item 0 hold NaN or infinity"),
        (lambda: summarise(np.zeros((3, 3)), [0, 1]), "3 items, but sources of shape \\(2,\\)"),
        (lambda: summarise(np.zeros((3, 3)), [0, 1, 2], ["a"]), "groups of shape \\(1,\\)"),
        (lambda: summarise(np.zeros((2, 3)), [0, 1], ["a", "macro"]), "cannot be called 'macro'"),
    ],
)
def test_bad_scores_are_named(call, message):
    with pytest.raises(ValueError, match=message):
        call()
