"""Derangements, credit rules, grounded gain, direction balance."""

from __future__ import annotations

import itertools
from collections import Counter

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy.stats import chisquare

from readout_utils import deflation
from readout_utils.benchmarks import load_benchmark
from readout_utils.deflation import (
    bootstrap_interval,
    credit,
    derangement,
    direction_balance,
    grounded_gain,
    oracle_threshold,
    random_derangements,
    same_offer,
    statement_credit,
)


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


@given(st.lists(st.integers(0, 4), min_size=4, max_size=30), st.integers(0, 40))
@settings(max_examples=40)
def test_derangement_within_groups(sources, offset):
    sources = np.array([*sources, 98, 99] * 2)
    groups = np.repeat([0, 1], len(sources) // 2)
    partners = derangement(sources, offset, groups)
    assert (groups[partners] == groups).all() and (sources[partners] != sources).all()
    for group in (0, 1):
        members = np.flatnonzero(groups == group)
        assert np.array_equal(partners[members], members[derangement(sources[members], offset)])


@given(st.lists(st.integers(0, 6), min_size=2, max_size=30), st.integers(0, 9))
@settings(max_examples=80)
def test_random_derangements_are_derangements(sources, seed):
    most = Counter(sources).most_common(1)[0][1]
    if len(set(sources)) < 2 or 2 * most > len(sources):
        with pytest.raises(ValueError, match="two source images|gives each of them another"):
            random_derangements(sources, 3, seed)
        return
    drawn = random_derangements(sources, 3, seed)
    assert np.array_equal(drawn, random_derangements(sources, 3, seed))
    assert np.array_equal(drawn[:2], random_derangements(sources, 2, seed))
    for partners in drawn:
        assert sorted(partners) == list(range(len(sources)))
        assert (np.array(sources)[partners] != np.array(sources)).all()


@pytest.mark.parametrize("sources", [[0, 1, 2, 3], [0, 0, 1, 1, 2, 2], [0, 0, 0, 1, 2, 3], [0, 0, 1, 2, 3]])
@pytest.mark.parametrize("chain", [False, True])
def test_random_derangements_are_uniform(sources, chain, monkeypatch):
    """Against all derangements, listed; by rejection, and by the chain that large sources need."""
    sources = np.array(sources)
    every = [p for p in itertools.permutations(range(len(sources))) if (sources[list(p)] != sources).all()]
    if chain:
        monkeypatch.setattr(deflation, "_TRIES", 1)
    rng = np.random.default_rng(0)
    drawn = Counter(tuple(deflation._random_derangement(sources, rng)) for _ in range(60 * len(every)))
    assert set(drawn) <= set(every)
    assert chisquare([drawn[p] for p in every]).pvalue > 1e-4


def test_random_derangements_of_large_sources_and_groups():
    sources = np.arange(2000) // 20  # no random permutation of these qualifies
    groups = np.arange(2000) % 2
    (partners,) = random_derangements(sources, 1, 0, groups)
    assert (sources[partners] != sources).all() and (groups[partners] == groups).all()
    assert sorted(partners) == list(range(2000))
    distance = np.abs(sources[partners] - sources)
    assert distance.mean() == pytest.approx(100 / 3, abs=2)  # as far apart as two random sources


def test_random_derangements_that_cannot_be():
    with pytest.raises(ValueError, match="One source, that of item 0, holds 3 of 5"):
        random_derangements([0, 0, 0, 1, 2], 1)
    with pytest.raises(ValueError, match="at least one derangement"):
        random_derangements([0, 1], 0)
    with pytest.raises(ValueError, match="two source images"):
        derangement([0, 1, 2, 2], 1, groups=[0, 0, 1, 1])
    with pytest.raises(ValueError, match="2 groups for 3 items"):
        derangement([0, 1, 2], 1, groups=[0, 0])


def test_statements_are_judged_by_sign():
    scores, truth = np.array([0.3, -0.2, 0.0, 1e-12, -0.1]), np.array([1, 1, 1, 0, 0])
    assert statement_credit(scores, truth).tolist() == [1, 0, 0.5, 0.5, 1]
    assert statement_credit(scores, truth, threshold=0.25).tolist() == [1, 0, 0, 1, 1]


@given(st.lists(st.tuples(st.integers(-3, 3), st.integers(0, 1)), min_size=1, max_size=12))
def test_oracle_threshold_against_trying_all(pairs):
    scores, truth = np.array([float(s) for s, _ in pairs]), np.array([t for _, t in pairs])
    best = statement_credit(scores, truth, oracle_threshold(scores, truth)).mean()
    cuts = [c + 0.5 for c in range(-3, 3) if scores.min() < c + 0.5 < scores.max()]
    tried = [statement_credit(scores, truth, cut).mean() for cut in cuts]
    assert best == (max(tried) if tried else 0.5)


def test_a_constant_scorer_of_statements_is_at_chance():
    truth = np.array([1, 1, 1, 1, 0])
    for value in (0.0, 0.3, -7.0):
        scores = np.full(5, value)
        assert statement_credit(scores, truth, oracle_threshold(scores, truth)).mean() == 0.5
    assert statement_credit(np.zeros(5), truth).mean() == 0.5


def test_statements_refuse():
    with pytest.raises(ValueError, match="score of item 1 is NaN"):
        statement_credit([0, np.nan], [0, 1])
    with pytest.raises(ValueError, match="truth holds numbers from 0 to 1"):
        statement_credit([0, 1], [0, 2])
    with pytest.raises(ValueError, match="n scores and n truths"):
        oracle_threshold([0, 1, 2], [0, 1])


def test_grounded_gain_is_paired():
    rng = np.random.default_rng(0)
    null = rng.random(300)
    row = grounded_gain(null + 0.25, null, np.arange(300))
    assert row.gain == pytest.approx(0.25) and row.gain_high - row.gain_low < 1e-9
    assert row.high - row.low > 0.05
    with pytest.raises(ValueError, match="a source each"):
        bootstrap_interval(null, np.arange(5))


def pairs(*rows):
    """Captions and right ones from texts: the first of each row is right."""
    return [(right, wrong) for right, wrong in rows], [0] * len(rows)


def test_direction_balance_keeps_what_balances():
    ab, ba = "a dog left of a cup", "a dog right of a cup"
    captions, correct = pairs(
        (ab, ba), (ab, ba), (ab, ba), (ba, ab), ("a cat left of a cup", "a cat right of a cup")
    )
    kept = direction_balance(captions, correct, "captions")
    assert len(kept) == 2 and 3 in kept and 4 not in kept
    assert len({direction_balance(captions, correct, "captions", seed=s)[0] for s in range(20)}) == 3
    # whatever the articles, the synonym and the order in which the captions stand
    other = [("the dog on the right of the cup", "the dog on the left of the cup")]
    assert direction_balance([captions[0], *other], [0, 0], "captions").tolist() == []
    assert direction_balance([captions[0], *other], [0, 0], "nouns").tolist() == [0, 1]
    assert direction_balance([captions[0], captions[0]], [0, 1], "captions").tolist() == [0, 1]
    # a cat and a dog balance each other only for those who do not look at nouns
    captions, correct = pairs((ab, ba), ("a cat right of a cup", "a cat left of a cup"))
    assert direction_balance(captions, correct, "nouns").tolist() == []
    assert direction_balance(captions, correct, "relation").tolist() == [0, 1]


def test_direction_balance_of_swaps_and_of_what_does_not_parse():
    ab, ba = "a dog left of a cup", "a cup left of a dog"
    captions, correct = pairs((ab, ba), (ba, ab), ("a dog eats a cup", "a cup eats a dog"), (ab, ba))
    kept = direction_balance(captions, correct, "nouns")
    assert 1 in kept and 2 not in kept and len(kept) == 2
    assert direction_balance(captions, correct, "relation").tolist() == [0, 1, 3]
    assert len(np.unique(same_offer(captions)[[0, 1, 3]])) == 1
    # a dog in front of a cup is not a dog below a cup, though both are lower in the picture
    captions, correct = pairs(
        ("a dog in front of a cup", "a dog behind a cup"), ("a dog above a cup", "a dog below a cup")
    )
    assert direction_balance(captions, correct, "nouns").tolist() == []


def test_no_scorer_of_text_beats_a_balanced_set():
    """The certificate in its strongest form: every function of the two captions is right in exactly half."""
    rng = np.random.default_rng(0)
    nouns = ["dog", "cup", "tv", "ox"]
    captions, correct = [], []
    for _ in range(400):
        a, b = rng.choice(nouns, 2, replace=False)
        captions.append((f"a {a} left of a {b}", f"a {a} right of a {b}"))
        correct.append(int(rng.random() < (0.1 if a == "dog" else 0.7)))
    correct = np.array(correct)
    kept = direction_balance(captions, correct, "captions")
    assert 150 < len(kept) < 400
    table = {caption: rng.random() for options in captions for caption in options}
    scores = np.array([[table[caption] for caption in options] for options in captions])
    assert credit(scores[kept], correct[kept]).mean() == 0.5
    assert credit(scores, correct).mean() != 0.5


def test_direction_balance_of_balanced_scenes_keeps_all():
    benchmark = load_benchmark("scenes/left-right", items=80)
    assert len(direction_balance(benchmark.captions, benchmark.correct, "captions")) == 80


def test_direction_balance_refuses():
    with pytest.raises(ValueError, match="Item 0 has 3 captions"):
        direction_balance([("a", "b", "c")], [0])
    with pytest.raises(ValueError, match="Balance by"):
        direction_balance([("a", "b")], [0], by="mood")


def test_labels_are_whole_numbers_that_exist():
    scores = np.array([[0.0, 1.0]])
    for wrong, message in (([0.9], "not whole numbers"), ([-1], "from 0 to 1"), ([2], "from 0 to 1")):
        with pytest.raises(ValueError, match=message):
            credit(scores, wrong)
        with pytest.raises(ValueError, match=message):
            statement_credit([1.0], wrong)


def test_sources_are_one_name_an_item():
    with pytest.raises(ValueError, match="one name an item"):
        derangement([["a", "b"], ["c", "d"]])
    with pytest.raises(ValueError, match="none missing"):
        derangement(["a", None, "b"])
    with pytest.raises(ValueError, match="group 'y' has one"):
        derangement([0, 1, 2, 2], 1, groups=["x", "x", "y", "y"])


def test_a_derangement_of_two_long_runs_is_quick():
    sources = np.repeat([0, 1], 20000)
    partners = derangement(sources, 101)
    assert (sources[partners] != sources).all() and partners[0] == 20000 and partners[20000] == 0
