"""Binding: scenes that tell nothing but shape and place together, the probe, what known features score."""

from __future__ import annotations

import hashlib
from itertools import combinations

import numpy as np
import pytest
import torch
from sklearn.linear_model import LogisticRegression
from sklearn.preprocessing import StandardScaler

from readout_utils.binding import (
    COLORS,
    KINDS,
    PLACES,
    TASKS,
    binding_accuracy,
    binding_scenes,
    binding_table,
    color_features,
    draw_binding_scenes,
    shape_coverage,
    true_factors,
)
from readout_utils.scenes import CANVAS


def by_label(scenes, values) -> tuple[np.ndarray, np.ndarray]:
    """Values of the scenes with either label, in the order of their groups."""
    return tuple(values[scenes.label == label] for label in (0, 1))


def same_in_both(scenes, values) -> bool:
    """Whether each group holds the same collection of values with label 0 as with label 1."""
    zero, one = (part.reshape(len(part) // 2, 2, -1) for part in by_label(scenes, values))
    return all(
        sorted(map(tuple, a.tolist())) == sorted(map(tuple, b.tolist()))
        for a, b in zip(zero, one, strict=True)
    )


# --- scenes ---------------------------------------------------------------------------------------


def test_pixels_are_the_same_on_every_machine():
    digest = hashlib.sha256()
    for task in TASKS:
        for places in PLACES:
            for colors in COLORS:
                digest.update(
                    draw_binding_scenes(binding_scenes(40, 7, colors, task=task, places=places)).tobytes()
                )
    assert digest.hexdigest() == "27772d5c349588a87b53b9f0f3b9523dae0f8629e3a8e3f9212f70877999d972"


@pytest.mark.parametrize("places", PLACES)
@pytest.mark.parametrize("task", TASKS)
def test_no_part_tells_the_label(task, places):
    scenes = binding_scenes(800, 1, task=task, places=places)
    fours = scenes.label.reshape(-1, 4)
    assert fours.sum(1).tolist() == [2] * 200
    assert np.abs(fours.mean(0) - 0.5).max() < 0.15  # nor does the order of scenes
    assert same_in_both(scenes, scenes.color)  # colours with their places
    for values in (scenes.place, scenes.x, scenes.y, scenes.radius, scenes.background):
        assert (values.reshape(200, 4, -1) == values.reshape(200, 4, -1)[:, :1]).all()
    if task == "binding":
        assert same_in_both(scenes, np.sort(scenes.kind))
        kind_and_color = np.concatenate([scenes.kind[..., None], scenes.color], axis=2)
        ordered = np.array([sorted(map(tuple, pair)) for pair in kind_and_color.tolist()])
        assert same_in_both(scenes, ordered)  # which kind has which colour
    elif task == "same-different":
        for k in range(2):  # the kind at one place
            assert same_in_both(scenes, scenes.kind[:, k])


def test_labels_mean_what_they_say():
    binding, same, shapes = (binding_scenes(400, 2, task=task) for task in TASKS)
    assert np.array_equal(binding.label == 1, binding.kind[:, 0] < binding.kind[:, 1])
    assert (binding.kind[:, 0] != binding.kind[:, 1]).all()
    assert np.array_equal(same.label == 1, same.kind[:, 0] == same.kind[:, 1])
    assert np.array_equal(shapes.label == 1, (shapes.kind < 4).all(1))
    assert np.array_equal(shapes.label == 0, (shapes.kind >= 4).all(1))
    four = binding_scenes(400, 2, places="four")
    assert (four.place[:, 0] < four.place[:, 1]).all()
    assert len({*map(tuple, four.place)}) == 6
    assert len({*map(tuple, binding_scenes(4000, 2).kind)}) == 56


def test_colours_of_training_and_test_are_disjoint():
    seen = [
        {tuple(color) for color in binding_scenes(400, 0, colors).color.reshape(-1, 3)} for colors in COLORS
    ]
    assert seen == [set(COLORS["train"].values()), set(COLORS["test"].values())]
    assert not seen[0] & seen[1]
    scenes = binding_scenes(400, 0)
    assert (scenes.color[:, 0] != scenes.color[:, 1]).any(1).all()


@pytest.mark.parametrize("places", PLACES)
def test_shapes_are_drawn_whole_at_their_place_in_their_colour(places):
    scenes = binding_scenes(200, 3, places=places)
    images = draw_binding_scenes(scenes)
    assert images.shape == (200, CANVAS, CANVAS, 3) and images.dtype == np.uint8
    for index, image in enumerate(images):
        drawn = (image != scenes.background[index]).any(-1)
        area = 0
        for k in range(2):
            x, y, radius = (int(getattr(scenes, name)[index, k]) for name in ("x", "y", "radius"))
            assert radius <= x <= CANVAS - radius and radius <= y <= CANVAS - radius
            box = np.s_[y - radius : y + radius, x - radius : x + radius]
            cover = shape_coverage(KINDS[scenes.kind[index, k]], radius)
            assert (image[box][cover == 16] == scenes.color[index, k]).all()
            assert np.array_equal(drawn[box], cover > 0)
            area += (cover > 0).sum()
        assert drawn.sum() == area  # nothing else, no overlap


def test_kinds_differ_in_shape_at_every_size():
    for radius in range(10, 14):
        for one, other in combinations(KINDS, 2):
            difference = np.abs(shape_coverage(one, radius) - shape_coverage(other, radius)).sum() / 16
            assert difference > 0.1 * (2 * radius) ** 2, (one, other)


def test_areas_of_shapes_by_geometry():
    radius = 40
    triangle = 2 * radius * 2 * radius / 2
    areas = {
        "circle": np.pi * radius**2,
        "square": (7 / 8 * 2 * radius) ** 2,
        "triangle": triangle,
        "diamond": 2 * radius**2,
        "cross": (2 * radius) ** 2 * (1 - 4 / 9),
        "star": 12 * radius**2 / np.sqrt(3) / 4,
        "ring": np.pi * radius**2 * (1 - 25 / 81),
    }
    for kind, area in areas.items():
        assert shape_coverage(kind, radius).sum() / 16 == pytest.approx(area, rel=0.02), kind
    assert shape_coverage("moon", radius).sum() < 0.75 * shape_coverage("circle", radius).sum()


def test_a_seed_fixes_the_scenes_and_another_changes_them():
    one, same, other = (draw_binding_scenes(binding_scenes(40, seed)) for seed in (1, 1, 2))
    assert np.array_equal(one, same)
    assert (one != other).any((1, 2, 3)).all()


def test_some_of_the_scenes():
    scenes = binding_scenes(40, 0)
    images = draw_binding_scenes(scenes)
    assert np.array_equal(draw_binding_scenes(scenes[5]), images[5:6])
    chosen = scenes.label == 1
    assert np.array_equal(draw_binding_scenes(scenes[chosen]), images[chosen])


# --- the probe ------------------------------------------------------------------------------------


def test_probe_equals_scikit_learn_with_many_dimensions():
    """The rotation to the rows' span changes nothing: more dimensions than rows, one strength."""
    rng = np.random.default_rng(0)
    train, test = rng.normal(size=(60, 200)), rng.normal(size=(400, 200))
    labels, truth = (rows[:, 0] + rng.normal(size=len(rows)) > 0 for rows in (train, test))
    scaler = StandardScaler().fit(train)
    plain = LogisticRegression(C=0.01, max_iter=5000, tol=1e-8).fit(scaler.transform(train), labels)
    expected = plain.score(scaler.transform(test), truth)
    score = binding_accuracy(train, labels, test, truth, strengths=(0.01,))
    assert score.accuracy == pytest.approx(expected, abs=1 / 400)
    assert score.low < score.accuracy < score.high
    assert (score.n, score.strength) == (400, 0.01)
    assert score.chance == max(truth.mean(), 1 - truth.mean())


def test_probe_ignores_scale_offset_and_order():
    scenes, asked = binding_scenes(200, 0), binding_scenes(200, 1)
    rng = np.random.default_rng(0)
    train, test = (true_factors(s) + rng.normal(size=(200, 16)) for s in (scenes, asked))
    score = binding_accuracy(train, scenes.label, test, asked.label, train_groups=scenes.group)
    assert 0.5 < score.accuracy < 1
    scaled = binding_accuracy(
        1e3 * train + 7, scenes.label, torch.tensor(1e3 * test + 7), asked.label, train_groups=scenes.group
    )
    assert scaled == score


def test_interval_covers_groups_not_scenes():
    rng = np.random.default_rng(0)
    train = rng.normal(size=(200, 1))
    labels = train[:, 0] > 0
    test, truth = np.repeat(rng.normal(size=(50, 1)), 8, axis=0), np.repeat(rng.random(50) < 0.5, 8)
    alone, grouped = (
        binding_accuracy(train, labels, test, truth, test_groups=groups)
        for groups in (None, np.arange(50).repeat(8))
    )
    assert alone.accuracy == grouped.accuracy
    assert grouped.high - grouped.low == pytest.approx(np.sqrt(8) * (alone.high - alone.low), rel=0.2)


def test_interval_of_a_perfect_score_is_not_a_point():
    labels = np.arange(40) % 2
    score = binding_accuracy(labels[:, None], labels, labels[:, None], labels, test_groups=np.arange(40) // 4)
    assert (score.accuracy, score.high) == (1, 1)
    assert score.low == pytest.approx(0.025 ** (1 / 10))
    wrong = binding_accuracy(labels[:, None], labels, labels[:, None], 1 - labels)
    assert (wrong.accuracy, wrong.low) == (0, 0) and 0 < wrong.high < 0.1


def test_labels_of_several_classes():
    labels = np.random.default_rng(0).integers(0, 3, 300)
    score = binding_accuracy(np.eye(3)[labels], labels, np.eye(3)[labels], labels)
    assert score.accuracy == 1
    assert score.chance == np.bincount(labels).max() / 300


# --- known embeddings -----------------------------------------------------------------------------


@pytest.mark.parametrize("places", PLACES)
def test_what_known_features_score(places):
    train, test = (binding_scenes(n, seed, colors, places=places) for n, seed, colors in
                   ((1200, 0, "train"), (400, 1, "test")))  # fmt: skip

    def score(features, train=train):
        return binding_accuracy(
            features(train), train.label, features(test), test.label,
            train_groups=train.group, test_groups=test.group,
        )  # fmt: skip

    assert score(true_factors).accuracy == 1
    bag = score(lambda scenes: np.eye(len(KINDS))[scenes.kind].sum(1))
    assert bag.accuracy == bag.low == bag.high == 0.5  # each four is half right, whatever the weights
    assert score(lambda scenes: np.eye(4)[scenes.place].sum(1)).accuracy == 0.5
    assert score(color_features).accuracy == 0.5
    told = binding_scenes(1200, 2, places=places, shortcut=True)
    more = binding_scenes(400, 3, places=places, shortcut=True)
    assert score(color_features, told).accuracy == 0.5
    shortcut = binding_accuracy(color_features(told), told.label, color_features(more), more.label)
    assert shortcut.accuracy == 1


def test_same_and_different_need_more_than_which_kind_is_where():
    train, test = (
        binding_scenes(400, seed, colors, task="same-different")
        for seed, colors in ((0, "train"), (1, "test"))
    )
    linear, crossed = (
        binding_accuracy(true_factors(train, t), train.label, true_factors(test, t), test.label)
        for t in ("binding", "same-different")
    )
    assert crossed.accuracy == 1
    assert linear.accuracy < 0.6


@pytest.fixture(scope="module")
def pocket_table(pocket):
    return binding_table(lambda images: pocket.encode_images(images).pooled, n_train=600, n_test=400)


def test_table_of_the_pocket_encoder(pocket_table):
    table = pocket_table
    assert table.index.tolist() == [
        "binding", "same/different", "shapes", "binding, true factors", "same/different, true factors",
        "binding, shuffled labels", "colour shortcut, train colours", "colour shortcut, test colours",
    ]  # fmt: skip
    assert np.isfinite(table.to_numpy(float)).all()
    assert ((table.low <= table.accuracy) & (table.accuracy <= table.high)).all()
    assert (table.chance == 0.5).all() and (table.n == 400).all()
    # it sees the shapes, and its pooled embedding does not say where they are
    assert table.accuracy["shapes"] > 0.65
    assert table.accuracy["binding"] < 0.6
    controls = table.accuracy.iloc[[3, 4, 6, 7]]
    assert controls.tolist() == [1, 1, 1, 0.5]
    assert 0.4 < table.accuracy["binding, shuffled labels"] < 0.6


def test_table_of_pixels():
    def pixels(images):
        return images[:, ::4, ::4].mean(-1).reshape(len(images), -1)

    table = binding_table(pixels, n_train=800, n_test=400)
    assert table.accuracy["binding"] > 0.65
    assert table.accuracy["same/different"] < 0.6  # not linear in pixels


def test_table_of_random_features():
    def table():
        rng = np.random.default_rng(0)
        return binding_table(lambda images: rng.normal(size=(len(images), 32)), n_train=400, n_test=400)

    noise = table()
    for row in ("binding", "same/different", "shapes", "binding, shuffled labels"):
        assert abs(noise.accuracy[row] - 0.5) < 0.1  # four standard errors
    assert noise.equals(table())


# --- bad input ------------------------------------------------------------------------------------

ROWS = np.random.default_rng(0).normal(size=(20, 3))
LABELS = np.arange(20) % 2


@pytest.mark.parametrize(
    ("call", "message"),
    [
        (lambda: binding_scenes(0, 0), "0 is no positive multiple of 4"),
        (lambda: binding_scenes(10, 0), "10 is no positive multiple of 4"),
        (lambda: binding_scenes(4, 0, "held-out"), "there are train, test"),
        (lambda: binding_scenes(4, 0, task="count"), "there are binding, same-different"),
        (lambda: binding_scenes(4, 0, places="nine"), "there are left-right, four"),
        (lambda: true_factors(binding_scenes(4, 0), "count"), "there are binding, same-different"),
        (lambda: shape_coverage("heart", 8), "there are circle, square"),
        (lambda: shape_coverage("circle", 0), "at least 1 pixel"),
        (lambda: binding_accuracy(ROWS, LABELS[:5], ROWS, LABELS), r"training set .* \(20, 3\) and \(5,\)"),
        (lambda: binding_accuracy(ROWS, LABELS, ROWS[:0], LABELS[:0]), "test set"),
        (lambda: binding_accuracy(ROWS, LABELS, ROWS[:, :2], LABELS), "3 dimensions and test ones 2"),
        (lambda: binding_accuracy(ROWS, LABELS * 0, ROWS, LABELS), "training labels are all the same"),
        (lambda: binding_accuracy(ROWS, LABELS, np.log(ROWS), LABELS), "test embedding holds NaN"),
        (lambda: binding_accuracy(ROWS, LABELS, ROWS, LABELS, folds=21), "20 groups .* 21 folds"),
        (lambda: binding_accuracy(ROWS, LABELS, ROWS, LABELS, train_groups=LABELS), "2 groups .* 5 folds"),
        (lambda: binding_accuracy(ROWS, LABELS, ROWS, LABELS, test_groups=LABELS[:3]), "groups of shape"),
        (lambda: binding_accuracy(ROWS, LABELS, ROWS, LABELS, strengths=(0.0,)), "positive numbers"),
        (lambda: binding_table(lambda images: images[:3, 0, 0], n_train=40, n_test=40), r"\(3, 3\)"),
        (lambda: binding_table(lambda images: images / 255, n_train=40, n_test=40), r"\(40, 64, 64, 3\)"),
    ],
)  # fmt: skip
@pytest.mark.filterwarnings("ignore:invalid value encountered in log")
def test_bad_input_is_named(call, message):
    with pytest.raises(ValueError, match=message):
        call()
