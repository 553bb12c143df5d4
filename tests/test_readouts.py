"""Readouts and symmetry: the identities they must obey, on trained and on random encoders."""

from __future__ import annotations

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from readout_utils.alignment import VARIANTS
from readout_utils.benchmarks import load_benchmark
from readout_utils.captions import RELATIONS, CaptionError, content_words, flip, orbit, relate, swap
from readout_utils.deflation import credit
from readout_utils.encoders import ImageFeatures, load_encoder
from readout_utils.evaluation import score_items
from readout_utils.readouts import Deployed, DirectionOf, Displacement, HalfCrop
from readout_utils.scenes import NOUNS, draw_scenes, random_scenes
from readout_utils.symmetry import components, direction, orbit_scores, symmetry_profile

NAMES = list(NOUNS)


class NamedWords:
    """A text encoder that gives every noun a fixed random direction."""

    name = "named words"

    def encode_texts(self, texts):
        rows = [
            torch.randn(8, generator=torch.Generator().manual_seed(sum(map(ord, text)) * 7919 + len(text)))
            for text in texts
        ]
        return torch.nn.functional.normalize(torch.stack(rows), dim=-1)


def random_features(seed: int, b: int = 4, grid=(4, 6)) -> ImageFeatures:
    generator = torch.Generator().manual_seed(seed)
    draw = lambda *shape: torch.nn.functional.normalize(torch.randn(*shape, 8, generator=generator), dim=-1)
    return ImageFeatures(draw(b), draw(b, grid[0] * grid[1]), grid)


def mirrored(features: ImageFeatures) -> ImageFeatures:
    rows, columns = features.grid
    patches = features.patches.unflatten(1, (rows, columns)).flip(2).flatten(1, 2)
    return ImageFeatures(features.pooled, patches, features.grid)


CAPTIONS = ["a dog to the left of a cup", "an owl above a key", "a tv right of a hat", "a pig under a bed"]
seeds = st.integers(0, 10_000)
variants = st.sampled_from(VARIANTS)


@given(seed=seeds, variant=variants)
@settings(max_examples=30, deadline=None)
def test_displacement_is_odd_under_swap(seed, variant):
    features, readout = random_features(seed), Displacement(variant)
    s = readout.score(NamedWords(), features, CAPTIONS)
    t = readout.score(NamedWords(), features, [swap(c) for c in CAPTIONS])
    np.testing.assert_allclose(t, -s, atol=1e-12)
    assert np.abs(s).max() > 1e-6


@given(seed=seeds, variant=variants)
@settings(max_examples=30, deadline=None)
def test_displacement_is_odd_under_flip(seed, variant):
    """With noun phrases as words the relation is no column, so every variant is odd under flip."""
    features, readout = random_features(seed), Displacement(variant)
    s = readout.score(NamedWords(), features, CAPTIONS)
    t = readout.score(NamedWords(), features, [flip(c) for c in CAPTIONS])
    np.testing.assert_allclose(t, -s, atol=1e-12)


@given(seed=seeds, variant=variants)
@settings(max_examples=30, deadline=None)
def test_with_content_words_only_separate_alignments_are_odd_under_flip(seed, variant):
    """With the relation's words as columns, a coupling lets them disturb the nouns: swap stays exact."""
    features, readout = random_features(seed), Displacement(variant, words="content")
    captions = [
        "a dog to the left of a cup",
        "an owl above a key",
        "a hat right of a pan",
        "a pig under a bed",
    ]
    s, flipped, swapped = (
        readout.score(NamedWords(), features, list(c))
        for c in (captions, map(flip, captions), map(swap, captions))
    )
    np.testing.assert_allclose(swapped, -s, atol=1e-12)
    if variant in ("dense", "argmax"):
        np.testing.assert_allclose(flipped, -s, atol=1e-12)
        np.testing.assert_allclose(
            s, Displacement(variant).score(NamedWords(), features, captions), atol=1e-12
        )
    else:
        assert np.abs(flipped + s).max() > 1e-6


@given(seed=seeds, variant=variants)
@settings(max_examples=20, deadline=None)
def test_other_words_may_come_in_any_order(seed, variant):
    features, readout = random_features(seed), Displacement(variant, words="content")
    one = readout.score(NamedWords(), features, ["red shiny dog above cup"], [0])
    two = readout.score(NamedWords(), features, ["shiny red dog above cup"], [0])
    np.testing.assert_allclose(one, two, atol=1e-12)


def test_content_words_lose_short_nouns_openly():
    readout = Displacement(words="content")
    captions = ["a dog above a cup", "a tv above a cup", "a dining table left of the ox"]
    assert readout.covers(captions).tolist() == [True, False, False]
    assert Displacement().covers(captions).all()
    s = readout.score(NamedWords(), random_features(0), captions, [0, 0, 0])
    assert s[0] != 0 and s[1] == 0 and s[2] == 0
    assert Displacement().covers(["a dog above a dog", "a dog above another cup"]).tolist() == [False, True]
    assert Displacement().score(NamedWords(), random_features(0), ["a dog above a dog"], [0]) == [0]
    assert content_words("The dining table is to the left of a TV and an ox") == ("dining", "table", "left")


@given(seed=seeds, variant=variants)
@settings(max_examples=30, deadline=None)
def test_mirrored_image_and_flipped_relation_score_the_same(seed, variant):
    features, readout = random_features(seed), Displacement(variant)
    captions = [
        "a dog to the left of a cup",
        "a tv right of a hat",
        "a pig left of a bed",
        "a fox on the right of an owl",
    ]
    s = readout.score(NamedWords(), features, captions)
    t = readout.score(NamedWords(), mirrored(features), [flip(c) for c in captions])
    np.testing.assert_allclose(t, s, atol=1e-9)
    vertical = readout.score(NamedWords(), features, ["a dog above a cup"] * 4)
    np.testing.assert_allclose(
        readout.score(NamedWords(), mirrored(features), ["a dog above a cup"] * 4), vertical, atol=1e-9
    )


@given(seed=seeds, variant=variants)
@settings(max_examples=30, deadline=None)
def test_score_does_not_depend_on_order_or_company(seed, variant):
    features, readout = random_features(seed), Displacement(variant)
    order = np.random.default_rng(seed).permutation(4)
    s = readout.score(NamedWords(), features, CAPTIONS)
    t = readout.score(NamedWords(), features, [CAPTIONS[i] for i in order], order)
    assert np.array_equal(t, s[order])
    assert readout.score(NamedWords(), features, CAPTIONS[2:3], [2]) == s[2]


@given(seed=seeds, variant=st.sampled_from(["dense", "argmax"]))
@settings(max_examples=20, deadline=None)
def test_several_relations_add_up(seed, variant):
    """Words are aligned one by one in these variants, so relations do not disturb each other."""
    features, readout = random_features(seed, b=1), Displacement(variant)
    both = readout.score(NamedWords(), features, ["a dog above a cup and a cat left of a tree"])
    parts = readout.score(NamedWords(), features, ["a dog above a cup", "a cat left of a tree"], [0, 0])
    np.testing.assert_allclose(both[0], parts.sum(), atol=1e-12)


@given(seed=seeds)
@settings(max_examples=20, deadline=None)
def test_score_against_a_loop_over_captions(seed):
    """An independent derivation, one caption at a time in numpy."""
    features, texts = random_features(seed), NamedWords()
    ours = Displacement("dense").score(texts, features, CAPTIONS)
    rows, columns = features.grid
    for j, caption in enumerate(CAPTIONS):
        words = caption.split()
        nouns, axis = (words[1], words[-1]), next(RELATIONS[p] for p in RELATIONS if f" {p} " in caption)
        w = texts.encode_texts(nouns).double().numpy()
        p = features.patches[j].double().numpy()
        w, p = w / np.linalg.norm(w, axis=1, keepdims=True), p / np.linalg.norm(p, axis=1, keepdims=True)
        places = []
        for word in w:
            mass = np.exp(p @ word / 0.05)
            mass /= mass.sum()
            x = sum(mass[i] * (i % columns + 0.5) / columns for i in range(rows * columns))
            y = sum(mass[i] * (i // columns + 0.5) / rows for i in range(rows * columns))
            places.append(np.array([x, y]))
        assert abs(ours[j] - np.dot(axis, places[0] - places[1])) < 1e-9


def test_chunks_change_nothing(monkeypatch):
    features = random_features(0)
    captions, image = CAPTIONS * 10, np.arange(40) % 4
    whole = Displacement().score(NamedWords(), features, captions, image)
    monkeypatch.setattr("readout_utils.readouts._NUMBERS", 3 * features.patches[0].numel())
    assert np.array_equal(Displacement().score(NamedWords(), features, captions, image), whole)


def test_deployed_is_the_cosine(pocket):
    images = draw_scenes(random_scenes(3, 0))
    features = pocket.encode_images(images)
    captions = ["a dog", "a cup and a key", "an owl"]
    texts = pocket.encode_texts(captions)
    expected = torch.cosine_similarity(features.pooled.double(), texts.double()).numpy()
    np.testing.assert_allclose(Deployed().score(pocket, features, captions), expected, atol=1e-6)


@pytest.mark.parametrize(
    ("call", "message"),
    [
        (lambda f: Displacement("sparse"), "there are excess"),
        (lambda f: Displacement(template="photo"), "no {} for the word"),
        (lambda f: Displacement(words="all"), "'phrases' or 'content'"),
        (lambda f: Displacement().score(NamedWords(), f, []), "No captions"),
        (lambda f: Displacement().score(NamedWords(), f, "a dog above a cup"), "write"),
        (lambda f: Displacement().score(NamedWords(), f, ["a dog above a cup"]), "1 captions for 4 images"),
        (
            lambda f: Displacement().score(NamedWords(), f, ["a dog above a cup"], [4]),
            "indices into 4 images",
        ),
        (lambda f: Displacement().score(NamedWords(), f, ["a dog beside a cup"], [0]), "No relation phrase"),
        (
            lambda f: Displacement().score(
                NamedWords(), ImageFeatures(f.pooled, f.patches * torch.nan, f.grid), CAPTIONS
            ),
            "NaN",
        ),
    ],
)
def test_bad_input_is_named(call, message):
    with pytest.raises(ValueError, match=message):
        call(random_features(0))


# symmetry


def test_components_rebuild_the_orbit():
    orbits = np.random.default_rng(0).normal(size=(50, 4))
    c = components(orbits)
    flip_signs, swap_signs = np.array([1, -1, 1, -1]), np.array([1, 1, -1, -1])
    rebuilt = c[:, :1] + c[:, 1:2] * flip_signs + c[:, 2:3] * swap_signs + c[:, 3:] * flip_signs * swap_signs
    np.testing.assert_allclose(rebuilt, orbits, atol=1e-12)
    np.testing.assert_allclose((orbits**2).sum(), 4 * (c**2).sum())
    np.testing.assert_allclose(direction(orbits), c[:, 3])
    np.testing.assert_allclose(symmetry_profile(orbits).sum(), 1)


def test_profiles_of_scores_with_known_symmetry():
    captions = [relate("dog", "above", "cup"), relate("owl", "left of", "key")]
    only_relation = orbit_scores(
        lambda c: np.array([float("above" in x or "left" in x) for x in c]), captions
    )
    assert symmetry_profile(only_relation).round(9).tolist() == [1, 0, 0]
    only_subject = orbit_scores(
        lambda c: np.array([float(x.startswith(("a dog", "an owl"))) for x in c]), captions
    )
    assert symmetry_profile(only_subject).round(9).tolist() == [0, 1, 0]
    constant = orbit_scores(lambda c: np.ones(len(c)), captions)
    assert symmetry_profile(constant).tolist() == [0, 0, 0]
    adr = orbit_scores(lambda c: Displacement().score(NamedWords(), random_features(0, b=2), c), captions)
    assert symmetry_profile(adr)["direction"] == pytest.approx(1)


@pytest.mark.parametrize(
    ("score", "message"),
    [
        (lambda c: np.ones(3), r"shape \(3,\) for 1 captions"),
        (lambda c: np.full(len(c), np.nan), "is nan"),
    ],
)
def test_scores_that_cannot_be_profiled(score, message):
    with pytest.raises(ValueError, match=message):
        orbit_scores(score, ["a dog above a cup"])
    with pytest.raises(ValueError, match="No captions"):
        orbit_scores(score, [])
    with pytest.raises(CaptionError):
        orbit_scores(score, ["a dog"])


class Bag:
    """A text encoder that forgets word order: the mean of its words' features."""

    def __init__(self, encoder):
        self.encoder = encoder

    def encode_texts(self, texts):
        return torch.stack([self.encoder.encode_texts(sorted(text.split())).mean(0) for text in texts])


@pytest.mark.parametrize("seed", [0, 1, 2])
def test_half_accuracy_proposition_on_random_encoders(make_random_pocket, seed):
    """A swap-even score is right on exactly half of a set that asks both orders, whatever the encoder."""
    encoder = make_random_pocket(seed)
    benchmark = load_benchmark("scenes/left-right", items=200, seed=seed)
    features = encoder.encode_images(benchmark.images)

    class Even:
        name = "swap-even"

        def score(self, _, features, captions, image):
            both = [
                Deployed().score(encoder, features, list(c), image) for c in (captions, map(swap, captions))
            ]
            return both[0] + both[1]

    even = score_items(encoder, benchmark, Even(), features)
    assert credit(even, benchmark.correct).mean() == 0.5
    pairs = credit(even, benchmark.correct).reshape(-1, 2).sum(1)
    assert (pairs == 1).all()  # one of each pair, or two ties
    bag = score_items(Bag(encoder), benchmark, Deployed(), features)
    assert credit(bag, benchmark.correct).mean() == 0.5
    margins = even[np.arange(200), benchmark.correct] - even[np.arange(200), 1 - benchmark.correct]
    np.testing.assert_allclose(margins[::2], -margins[1::2], atol=1e-12)
    assert np.abs(margins).max() > 1e-6


def test_direction_of_a_readout(pocket):
    benchmark = load_benchmark("scenes/left-right", items=20)
    features = pocket.encode_images(benchmark.images)
    captions = benchmark.right_captions()
    score = lambda c: Deployed().score(pocket, features, c, benchmark.image)
    expected = direction(orbit_scores(score, captions))
    ours = DirectionOf(Deployed()).score(pocket, features, captions, benchmark.image)
    np.testing.assert_allclose(ours, expected, atol=1e-12)
    adr = Displacement("dense")
    np.testing.assert_allclose(
        DirectionOf(adr).score(pocket, features, captions, benchmark.image),
        adr.score(pocket, features, captions, benchmark.image),
        atol=1e-9,
    )
    assert len(orbit(captions[0])) == 4


def test_half_crop_is_four_passes_written_out(make_random_pocket):
    encoder = make_random_pocket(0)
    encoder.halves = True
    pictures = draw_scenes(random_scenes(3, 0))
    features = encoder.encode_images(pictures)
    assert features.halves.shape == (3, 4, 32) and features[[1]].halves.shape == (1, 4, 32)
    pixels = encoder.to_pixels(pictures)
    left = torch.nn.functional.normalize(encoder._tower.forward(pixels[..., :32], None)[0], dim=-1)
    lower = torch.nn.functional.normalize(encoder._tower.forward(pixels[..., 32:, :], None)[0], dim=-1)
    torch.testing.assert_close(features.halves[:, 0], left)
    torch.testing.assert_close(features.halves[:, 3], lower)
    dog, cup = encoder.encode_texts(["dog", "cup"])
    halves = features.halves[1]
    for caption, toward, away in (
        ("a dog left of a cup", 0, 1), ("a dog right of a cup", 1, 0), ("a dog above a cup", 2, 3), ("a dog below a cup", 3, 2),
    ):  # fmt: skip
        score = HalfCrop().score(encoder, features, [caption], [1])[0]
        assert score == pytest.approx(float(halves[toward] @ dog + halves[away] @ cup), abs=1e-6)
    assert HalfCrop().covers(["a dog left of a cup", "a dog"]).tolist() == [True, False]


def test_half_crop_reads_direction_and_says_what_it_needs(pocket):
    benchmark = load_benchmark("scenes/left-right", items=80)
    plain = pocket.encode_images(benchmark.images)
    with pytest.raises(ValueError, match="halves=True"):
        HalfCrop().score(pocket, plain, benchmark.right_captions(), benchmark.image)
    features = load_encoder("pocket", halves=True).encode_images(benchmark.images)
    torch.testing.assert_close(features.pooled, plain.pooled)
    scores = score_items(pocket, benchmark, HalfCrop(), features)
    right = benchmark.right
    assert (scores[right] > scores[~right]).mean() > 0.95
    # roles inverted, the same score; so it is consistent by construction, as ADR is
    inverted = [flip(swap(caption)) for caption in benchmark.right_captions()]
    np.testing.assert_allclose(
        HalfCrop().score(pocket, features, inverted, benchmark.image), scores[right], atol=1e-12
    )


def test_halves_of_an_odd_grid_overlap_in_the_middle(make_random_pocket):
    encoder = make_random_pocket(0)
    encoder.halves, encoder.resolution = True, 40
    features = encoder.encode_images(draw_scenes(random_scenes(2, 0)))
    assert features.grid == (5, 5) and features.halves.shape == (2, 4, 32)
