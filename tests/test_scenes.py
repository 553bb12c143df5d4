"""Scenes: the same everywhere, balanced, honest about what is held out."""

from __future__ import annotations

import hashlib
from importlib import resources

import numpy as np
import pytest

from readout_utils.captions import LEFT, parse_relation
from readout_utils.scenes import (
    CANVAS,
    NOUNS,
    STYLES,
    TRAINING_STYLES,
    caption_scenes,
    draw_scenes,
    held_out_pairs,
    join_scenes,
    noun_index,
    question_scenes,
    random_scenes,
    sticker,
    vocabulary,
)

NAMES = list(NOUNS)


def digest(*arrays) -> str:
    return hashlib.sha256(b"".join(np.ascontiguousarray(a).tobytes() for a in arrays)).hexdigest()[:16]


def test_atlas_has_every_noun_in_every_style():
    assert len(NOUNS) >= 64 and len(STYLES) >= 4 and set(TRAINING_STYLES) < set(STYLES)
    licences = resources.files("readout_utils").joinpath("data", "STICKERS.md").read_text()
    for style in STYLES:
        assert style in licences.lower()
    looks = set()
    for style in range(len(STYLES)):
        for noun in range(len(NOUNS)):
            pixels = sticker(style, noun, 24)
            assert (pixels[..., 3] > 128).sum() > 20, (STYLES[style], NAMES[noun])
            looks.add(pixels.tobytes())
    assert len(looks) == len(STYLES) * len(NOUNS)  # no two stickers are the same picture


def test_batch_is_pinned():
    """The same pixels and captions on every machine; a change here changes every result."""
    scenes = random_scenes(64, 7)
    assert digest(draw_scenes(scenes)) == "0a818427d8d676c4"
    assert digest("\n".join(caption_scenes(scenes, 7)).encode()) == "7f4b8d240d85ffc1"
    assert (
        digest(draw_scenes(question_scenes("above-below", 64, 7, styles=("fluent",)))) == "15b3d37d69e65f66"
    )


def test_a_scene_does_not_depend_on_its_batch():
    scenes = random_scenes(20, 3)
    whole = draw_scenes(scenes)
    assert np.array_equal(draw_scenes(scenes[[11, 4]]), whole[[11, 4]])
    assert np.array_equal(draw_scenes(scenes[5]), whole[5:6])


def test_larger_drawings_show_the_same_scene():
    scenes = random_scenes(8, 1)
    small, large = draw_scenes(scenes), draw_scenes(scenes, scale=3)
    assert large.shape == (8, 192, 192, 3)
    shrunk = large.reshape(8, 64, 3, 64, 3, 3).mean((2, 4))
    assert np.abs(shrunk - small).mean() < 4


def test_scenes_stay_on_the_canvas_and_apart():
    scenes = random_scenes(500, 5)
    there = scenes.noun >= 0
    for centre in (scenes.x, scenes.y):
        low = centre - scenes.size // 2
        assert (low[there] >= 0).all() and ((low + scenes.size)[there] <= CANVAS).all()
    assert set(there.sum(1)) == {1, 2, 3}
    for index in range(len(scenes)):
        assert len(set(scenes.nouns(index))) == there[index].sum()
    held = held_out_pairs()
    for row in scenes.noun:
        row = row[row >= 0]
        assert not held[np.ix_(row, row)].any()
    assert set(np.unique(scenes.style[there])) == set(range(len(TRAINING_STYLES)))


def test_held_out_rule():
    held = held_out_pairs()
    assert (held == held.T).all() and not held.diagonal().any()
    assert 0.07 < held[np.triu_indices(len(held), 1)].mean() < 0.13
    assert held.any(1).all()  # every noun is asked about


@pytest.mark.parametrize("axis", ["left-right", "above-below"])
def test_question_scenes_are_balanced_and_apart(axis):
    scenes = question_scenes(axis, 400, 0, pairs="held-out")
    along = scenes.x if axis == "left-right" else scenes.y
    low = along - scenes.size // 2
    order = np.argsort(along, axis=1)
    ends = np.take_along_axis(low + scenes.size, order[:, :1], 1)
    starts = np.take_along_axis(low, order[:, 1:], 1)
    assert (starts >= ends).all()
    assert (along[::2, 0] < along[::2, 1]).all() and (along[1::2, 0] > along[1::2, 1]).all()
    assert np.array_equal(scenes.noun[::2], scenes.noun[1::2])
    held = held_out_pairs()
    assert held[scenes.noun[:, 0], scenes.noun[:, 1]].all()
    other = scenes.y if axis == "left-right" else scenes.x
    assert abs(np.corrcoef(along[:, 0], other[:, 0])[0, 1]) < 0.2


def test_relational_captions_are_true():
    scenes = random_scenes(2000, 2)
    seen = 0
    for index, caption in enumerate(caption_scenes(scenes, 2)):
        names = scenes.nouns(index)
        try:
            relation = parse_relation(caption)
        except ValueError:
            assert any(name in caption for name in names)
            continue
        subject, obj = (
            next(k for k, name in enumerate(names) if text.endswith(name))
            for text in (relation.subject, relation.object)
        )
        apart = np.array(
            [scenes.x[index, subject] - scenes.x[index, obj], scenes.y[index, subject] - scenes.y[index, obj]]
        )
        assert apart @ np.array(relation.axis) >= 10, caption
        seen += 1
    assert 300 < seen < 700


def test_captions_mention_nouns_in_both_orders():
    scenes = random_scenes(2000, 4, stickers=(2,))
    first = [caption for caption in caption_scenes(scenes, 4) if " and " in caption]
    forward = 0
    for index, caption in enumerate(caption_scenes(scenes, 4)):
        a, b = scenes.nouns(index)
        if a in caption and b in caption and " and " in caption:
            forward += caption.index(a) < caption.index(b)
    assert 0.42 < forward / len(first) < 0.58


def test_vocabulary_covers_captions():
    words = set(vocabulary())
    for caption in caption_scenes(random_scenes(3000, 8), 8):
        assert set(caption.split()) <= words


def test_mirroring_a_sticker():
    assert np.array_equal(sticker(0, 3, 20, True), sticker(0, 3, 20)[:, ::-1])
    assert LEFT == (-1.0, 0.0)


@pytest.mark.parametrize(
    ("call", "message"),
    [
        (lambda: noun_index("dgo"), "Did you mean dog"),
        (lambda: random_scenes(0, 0), "at least one"),
        (lambda: random_scenes(3, 0, styles=("blob",)), "Unknown drawing style 'blob'"),
        (lambda: random_scenes(3, 0, styles=()), "at least one drawing style"),
        (lambda: random_scenes(3, 0, sizes=(30, 20)), "must rise"),
        (lambda: random_scenes(3, 0, sizes=(30, 50)), "between 4 and 32"),
        (lambda: random_scenes(3, 0, stickers=(4,)), "one to three"),
        (lambda: random_scenes(3, 0, pairs="none"), "'training' or 'all'"),
        (lambda: question_scenes("near-far", 2, 0), "Unknown axis"),
        (lambda: question_scenes("left-right", 3, 0), "3 is odd"),
        (lambda: question_scenes("left-right", 4, 0, pairs="none"), "'held-out' or 'all'"),
        (lambda: draw_scenes(random_scenes(1, 0), scale=0), "whole number"),
    ],
)
def test_bad_input_is_named(call, message):
    with pytest.raises(ValueError, match=message):
        call()


def test_joined_scenes_draw_what_their_parts_draw():
    one, two = random_scenes(3, 0), random_scenes(2, 1)
    joined = join_scenes([one, two])
    assert np.array_equal(draw_scenes(joined), np.concatenate([draw_scenes(one), draw_scenes(two)]))
    with pytest.raises(ValueError, match="one part or more"):
        join_scenes([])
    with pytest.raises(ValueError, match="equally many"):
        join_scenes([one, question_scenes("left-right", 2, 0)])
