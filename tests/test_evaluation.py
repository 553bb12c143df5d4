"""Benchmarks, nulls, credit and the one table."""

from __future__ import annotations

import dataclasses

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from readout_utils.benchmarks import load_benchmark
from readout_utils.captions import parse_relation
from readout_utils.deflation import credit, derangement
from readout_utils.encoders import ImageFeatures
from readout_utils.evaluation import bootstrap_interval, encode_benchmark, evaluate, score_items
from readout_utils.readouts import Deployed, Displacement


@dataclasses.dataclass
class Constant:
    value: float = 0.3
    name: str = "constant"

    def score(self, encoder, features, captions, image):
        return np.full(len(captions), self.value)


class TextOnly:
    """Scores a caption by its text: any function of it, the image unseen."""

    name = "text only"

    def score(self, encoder, features, captions, image):
        return np.array([hash_of(caption) for caption in captions])


def hash_of(caption: str) -> float:
    import zlib

    return float(zlib.crc32(caption.encode()))


@pytest.mark.parametrize("axis", ["left-right", "above-below"])
@pytest.mark.parametrize("twin", ["", "/held-out-style", "/held-out-pairs", "/held-out-style/held-out-pairs"])
def test_scene_benchmarks_are_balanced(axis, twin):
    benchmark = load_benchmark(f"scenes/{axis}{twin}", items=200)
    assert len(benchmark) == 200 and len(benchmark.images) == 100
    assert benchmark.correct.mean() == 0.5
    scenes, names = benchmark.scenes, []
    for row, options in enumerate(benchmark.captions):
        right = parse_relation(options[benchmark.correct[row]])
        wrong = parse_relation(options[1 - benchmark.correct[row]])
        assert (right.subject, right.object) == (wrong.subject, wrong.object)
        assert right.axis == tuple(-c for c in wrong.axis)
        here = scenes.nouns(benchmark.image[row])
        s, o = here.index(right.subject), here.index(right.object)
        i = benchmark.image[row]
        apart = np.array([scenes.x[i, s] - scenes.x[i, o], scenes.y[i, s] - scenes.y[i, o]])
        assert apart @ np.array(right.axis) >= 20
        names.append((right.subject, right.object))
    assert names[::2] == [pair[::-1] for pair in names[1::2]]
    unseen = ImageFeatures(torch.zeros(100, 1), torch.zeros(100, 1, 1), (1, 1))
    text = score_items(None, benchmark, TextOnly(), unseen)
    assert credit(text, benchmark.correct).mean() == 0.5  # the text alone cannot tell


def test_scene_benchmarks_are_reproducible_and_differ():
    one, two = load_benchmark("scenes/left-right", items=40), load_benchmark("scenes/left-right", items=40)
    assert np.array_equal(one.images, two.images) and one.captions == two.captions
    assert not np.array_equal(one.images, load_benchmark("scenes/left-right", items=40, seed=1).images)
    twin = load_benchmark("scenes/left-right/held-out-style", items=40)
    assert set(np.unique(twin.scenes.style)) == {4} and not (one.scenes.style == 4).any()


@pytest.mark.parametrize("name", ["scenes/near-far", "whatsup", "scenes/left-right/held-out-noun", "scenes"])
def test_unknown_benchmark(name):
    with pytest.raises(ValueError, match="Unknown benchmark"):
        load_benchmark(name)
    with pytest.raises(ValueError, match="multiple of four"):
        load_benchmark("scenes/left-right", items=6)


def test_constant_scorer_gets_exactly_chance(pocket):
    benchmark = load_benchmark("scenes/left-right", items=40)
    table = evaluate(pocket, benchmark, [Constant()])
    assert table.loc["constant", ["accuracy", "null", "gain"]].tolist() == [0.5, 0.5, 0.0]


@given(st.integers(0, 3), st.integers(2, 5))
def test_credit_does_not_depend_on_where_the_right_caption_stands(right, k):
    right = min(right, k - 1)
    assert credit(np.zeros((1, k)), np.array([right]))[0] == pytest.approx(1 / k)
    scores = np.arange(k, dtype=float)[None]
    assert credit(scores, np.array([right]))[0] == (right == k - 1)
    assert credit(scores * 1e-12, np.array([right]))[0] == pytest.approx(1 / k)


def test_credit_refuses_nan_and_shapes():
    with pytest.raises(ValueError, match="item 1 hold NaN"):
        credit(np.array([[0, 1], [np.nan, 1]]), np.array([0, 0]))
    with pytest.raises(ValueError, match=r"k of at least 2"):
        credit(np.zeros((3, 1)), np.zeros(3, int))


@given(st.lists(st.integers(0, 5), min_size=2, max_size=40), st.integers(0, 60))
@settings(max_examples=60)
def test_derangement_against_a_loop(sources, offset):
    if len(set(sources)) < 2:
        with pytest.raises(ValueError, match="two source images"):
            derangement(sources, offset)
        return
    partners = derangement(sources, offset)
    for j, partner in enumerate(partners):
        i = (j + offset) % len(sources)
        while sources[i] == sources[j]:
            i = (i + 1) % len(sources)
        assert partner == i


def test_bootstrap_interval_covers_clusters():
    """Items of one image repeat its value: the interval is that of the images, not of the items."""
    rng = np.random.default_rng(0)
    values = rng.random(100)
    low, high = bootstrap_interval(values.repeat(5), np.arange(100).repeat(5))
    error = values.std() / 10
    assert high - low == pytest.approx(2 * 1.96 * error, rel=0.15)
    assert low < values.mean() < high


def test_evaluate_table(pocket):
    benchmark = load_benchmark("scenes/left-right", items=80)
    features = pocket.encode_images(benchmark.images)
    table = evaluate(pocket, benchmark, [Deployed(), Displacement("excess")], features=features)
    assert list(table.index) == ["deployed", "ADR excess"]
    again = evaluate(pocket, benchmark, [Displacement("excess"), Deployed()])
    assert table.equals(again.loc[table.index])
    row = table.loc["ADR excess"]
    by_hand = [
        s[c] > s[1 - c]
        for s, c in zip(
            score_items(pocket, benchmark, Displacement("excess"), features), benchmark.correct, strict=True
        )
    ]
    assert row["accuracy"] == np.mean(by_hand)
    assert row["gain"] == pytest.approx(row["accuracy"] - row["null"])
    assert (table["low"] <= table["accuracy"]).all() and (table["accuracy"] <= table["high"]).all()


def test_pictures_of_several_sizes_are_one_benchmark(make_random_pocket):
    encoder = make_random_pocket(0)
    square = load_benchmark("scenes/left-right", items=16)
    wide = [np.concatenate([image, image], axis=1) for image in square.images[::2]]
    images = [wide[i // 2] if i % 2 == 0 else square.images[i] for i in range(8)]
    mixed = dataclasses.replace(square, images=images, source=None)
    table = evaluate(encoder, mixed, [Deployed(), Displacement("dense")])
    features = encode_benchmark(encoder, mixed)
    assert sorted(len(members) for members, _ in features) == [4, 4]
    scores = score_items(encoder, mixed, Displacement("dense"), features)
    for row in (0, 3):
        alone = encoder.encode_images([images[mixed.image[row]]])
        expected = Displacement("dense").score(encoder, alone, mixed.captions[row], [0, 0])
        np.testing.assert_allclose(scores[row], expected, atol=1e-6)
    assert table.n.tolist() == [16, 16]


def test_a_null_image_never_shows_the_same_two_nouns():
    """Scenes come in twos with the same nouns: one is no null for the other, however few the items."""
    for items in (8, 20, 100, 104, 2000):
        benchmark = load_benchmark("scenes/left-right", items=items)
        null = benchmark.image[derangement(benchmark.source)]
        assert (benchmark.scenes.noun[null] != benchmark.scenes.noun[benchmark.image]).any(1).all()


def test_scores_that_cannot_be_evaluated(pocket):
    benchmark = load_benchmark("scenes/left-right", items=8)
    with pytest.raises(ValueError, match=r"scored 'a .*' \(item 0\) as nan"):
        evaluate(pocket, benchmark, [Constant(np.nan)])
    with pytest.raises(ValueError, match="Two readouts are called 'ADR excess'"):
        evaluate(pocket, benchmark, [Displacement(), Displacement()])
    assert Displacement(template="a photo of a {}").name != Displacement().name
    other = pocket.encode_images(load_benchmark("scenes/left-right", items=16).images)
    with pytest.raises(ValueError, match="Features of 8 images for the 4"):
        evaluate(pocket, benchmark, [Deployed()], features=other)
    with pytest.raises(ValueError, match="at least one readout"):
        evaluate(pocket, benchmark, [])
    bad = Constant()
    bad.score = lambda *args: np.zeros(3)
    with pytest.raises(ValueError, match=r"returned shape \(3,\) for 16 captions"):
        evaluate(pocket, benchmark, [bad])


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"captions": (), "image": [], "correct": [], "group": []}, "has no items"),
        ({"correct": np.array([0] * 7)}, "8 rows of captions, 7 in 'correct'"),
        ({"correct": np.array([2] * 8)}, "item 0: 2 captions, number 2"),
        ({"captions": ("a dog",) * 8}, "one text 'a dog', not a row"),
        ({"image": np.array([99] * 8)}, "outside its 4 images"),
    ],
)
def test_items_that_do_not_fit(change, message):
    benchmark = load_benchmark("scenes/left-right", items=8)
    with pytest.raises(ValueError, match=message):
        dataclasses.replace(benchmark, **change)
