"""Benchmarks, nulls, credit and the one table."""

from __future__ import annotations

import dataclasses
import itertools

import numpy as np
import pandas as pd
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from PIL import Image
from reference import reference_evaluate, reference_scores
from sklearn.metrics import roc_auc_score

from readout_utils import __version__
from readout_utils.benchmarks import Items, PictureFiles, load_benchmark
from readout_utils.captions import parse_relation
from readout_utils.deflation import credit, derangement, direction_balance, random_derangements, same_offer
from readout_utils.encoders import ImageFeatures
from readout_utils.evaluation import (
    _kept_credit,
    balance_certificate,
    compare,
    encode_benchmark,
    evaluate,
    load_items,
    per_item,
    risk_coverage,
    save_items,
    score_items,
    summarise,
    text_only,
)
from readout_utils.readouts import Deployed, DirectionOf, Displacement, PatchProbe, TextPrior
from readout_utils.scenes import random_scenes


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
    with pytest.raises(ValueError, match=r"returned shape \(3,\) for 32 captions"):
        evaluate(pocket, benchmark, [bad])


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"captions": (), "image": [], "correct": [], "group": []}, "has no items"),
        ({"correct": np.array([0] * 7)}, "8 rows of captions, 'correct' is of shape"),
        ({"correct": np.array([2] * 8)}, "item 0: 2 captions, number 2"),
        ({"captions": ("a dog",) * 8}, "one text 'a dog', not a row"),
        ({"image": np.array([99] * 8)}, "outside its 4 images"),
        ({"image": np.array([True] * 8)}, "'image' holds bool, not integers"),
        ({"group": np.array(["a"] * 7 + [None], dtype=object)}, "item 7: 'group' is missing"),
        ({"captions": ((),) * 8}, "item 0: no captions"),
        (
            {"captions": (("a dog", "a cat"),) * 7 + (("a dog",),)},
            "item 7: 1 captions where the first item has 2",
        ),
        ({"details": pd.DataFrame({"file": ["x"] * 8})}, "a file and a row, or neither"),
    ],
)
def test_items_that_do_not_fit(change, message):
    benchmark = load_benchmark("scenes/left-right", items=8)
    with pytest.raises(ValueError, match=message):
        dataclasses.replace(benchmark, **change)


# --- streaming, nulls, coverage -------------------------------------------------------------------


def statements(benchmark, name="statements"):
    """A pair benchmark as statements: each item's first caption, true or false."""
    return dataclasses.replace(
        benchmark,
        name=name,
        captions=tuple(options[:1] for options in benchmark.captions),
        correct=1 - benchmark.correct,
    )


def choices(benchmark, k=4):
    """A pair benchmark with further captions that are wrong on any picture of it."""
    more = tuple(f"a whale {word} a crown" for word in ("above", "below", "left of", "right of"))[: k - 2]
    return dataclasses.replace(benchmark, captions=tuple((*more, *o) for o in benchmark.captions),
                               correct=benchmark.correct + k - 2)  # fmt: skip


def test_a_streamed_evaluation_is_the_one_on_features_at_hand(pocket):
    benchmark = load_benchmark("scenes/left-right", items=120)
    readouts = [Deployed(), Displacement("excess"), Displacement("dense")]
    whole = per_item(pocket, benchmark, readouts, features=pocket.encode_images(benchmark.images))
    for chunk in (7, 64):
        streamed = per_item(pocket, benchmark, readouts, chunk=chunk)
        for column in ("margin", "null_margin", "confidence"):
            np.testing.assert_allclose(streamed[column], whole[column], atol=1e-6)
        assert (streamed.credit == whole.credit).all() and (streamed.null_credit == whole.null_credit).all()


def test_results_do_not_depend_on_the_order_of_items(pocket):
    """Items in another order, with the same null partners: the same rows."""
    benchmark = load_benchmark("scenes/left-right", items=80)
    order = np.random.default_rng(0).permutation(80)
    mixed = benchmark.select(order)
    readout = Displacement("excess")
    features = encode_benchmark(pocket, benchmark)
    one = score_items(pocket, benchmark, readout, features)
    two = score_items(pocket, mixed, readout, encode_benchmark(pocket, mixed))
    np.testing.assert_allclose(two, one[order], atol=1e-6)


class Counting:
    """An encoder that counts what it is asked to encode."""

    def __init__(self, encoder):
        self._encoder, self.images, self.texts, self.largest = encoder, 0, [], 0

    def __getattr__(self, name):
        return getattr(self._encoder, name)

    def encode_images(self, images):
        self.images += len(images)
        self.largest = max(self.largest, len(images))
        return self._encoder.encode_images(images)

    def encode_texts(self, texts):
        self.texts += list(texts)
        return self._encoder.encode_texts(texts)


def test_every_picture_and_text_is_encoded_once_and_few_are_held(pocket):
    benchmark = load_benchmark("scenes/left-right", items=160)
    counting = Counting(pocket)
    per_item(
        counting, benchmark, [Deployed(), Displacement(), Displacement("dense")], derangements=3, chunk=16
    )
    assert counting.images == len(benchmark.images) == 80
    assert counting.largest <= 16
    assert len(counting.texts) == len(set(counting.texts))


def test_each_picture_file_is_opened_once(pocket, tmp_path, monkeypatch):
    benchmark = load_benchmark("scenes/left-right", items=16)
    paths = []
    for index, image in enumerate(benchmark.images):
        paths.append(tmp_path / f"{index}.png")
        Image.fromarray(image).save(paths[-1])
    files = dataclasses.replace(benchmark, images=PictureFiles(paths))
    opened = []
    real = PictureFiles.__getitem__
    monkeypatch.setattr(PictureFiles, "__getitem__", lambda self, i: opened.append(i) or real(self, i))
    table = evaluate(pocket, files, [Deployed(), Displacement()])
    assert sorted(opened) == list(range(8))
    pd.testing.assert_frame_equal(table, evaluate(pocket, benchmark, [Deployed(), Displacement()]))


def test_a_picture_that_does_not_open_is_named_with_its_item(pocket, tmp_path):
    benchmark = load_benchmark("scenes/left-right", items=8)
    Image.fromarray(benchmark.images[0]).save(tmp_path / "0.png")
    (tmp_path / "1.png").write_bytes(b"no picture")
    details = pd.DataFrame({"file": "made.json", "row": np.arange(8) + 100})
    paths = [tmp_path / name for name in ("0.png", "1.png", "2.png", "3.png")]
    broken = dataclasses.replace(benchmark, images=PictureFiles(paths), details=details)
    with pytest.raises(ValueError, match=r"made\.json, row 102: .*1\.png does not open"):
        evaluate(pocket, broken, [Deployed()])
    assert broken.images.missing() == paths[2:]


def test_an_interrupted_run_resumes(pocket, tmp_path):
    benchmark = load_benchmark("scenes/left-right", items=120)

    class Breaking(Displacement):
        calls = 0

        def score(self, *args):
            Breaking.calls += 1
            if Breaking.calls == 3:
                raise KeyboardInterrupt
            return super().score(*args)

    with pytest.raises(KeyboardInterrupt):
        per_item(pocket, benchmark, [Breaking()], keep=tmp_path / "run", chunk=16)
    assert len(list((tmp_path / "run").glob("chunk-*.npz"))) == 2
    counting = Counting(pocket)
    counting.model = pocket.model
    resumed = per_item(pocket, benchmark, [Breaking()], keep=tmp_path / "run", chunk=16)
    assert Breaking.calls == 3 + 2  # four chunks in all, two were there
    pd.testing.assert_frame_equal(resumed, per_item(pocket, benchmark, [Displacement()], chunk=16))
    with pytest.raises(ValueError, match="holds a run of another"):
        per_item(pocket, benchmark, [Deployed()], keep=tmp_path / "run", chunk=16)
    with pytest.raises(ValueError, match="holds a run of another"):
        per_item(pocket, load_benchmark("scenes/left-right", items=120, seed=1), [Breaking()],
                 keep=tmp_path / "run", chunk=16)  # fmt: skip


def test_a_score_that_breaks_keeps_what_was_done(pocket, tmp_path):
    benchmark = load_benchmark("scenes/left-right", items=120)

    class Breaking(Constant):
        calls = 0

        def score(self, encoder, features, captions, image):
            Breaking.calls += 1
            return np.full(len(captions), np.nan if Breaking.calls == 2 else 0.0)

    with pytest.raises(ValueError, match=r"constant scored 'a .*' \(item \d+\) as nan"):
        per_item(pocket, benchmark, [Breaking()], keep=tmp_path, chunk=16)
    assert len(list(tmp_path.glob("chunk-*.npz"))) == 1


@pytest.mark.parametrize("form", [lambda b: b, statements, choices], ids=["pairs", "statements", "choices"])
@pytest.mark.parametrize("derangements", [None, 4])
def test_a_constant_scorer_is_at_chance_on_every_form(pocket, form, derangements):
    benchmark = form(load_benchmark("scenes/left-right", items=40))
    for value in (0.0, 0.3, -2.0):
        row = evaluate(pocket, benchmark, [Constant(value)], derangements=derangements).loc["constant"]
        chance = 1 / max(2, len(benchmark.captions[0]))
        assert row[["accuracy", "null", "gain", "auroc", "selective", "macro"]].tolist() == [
            chance, chance, 0, 0.5, chance, chance,
        ]  # fmt: skip


def test_what_is_not_covered(pocket):
    benchmark = load_benchmark("scenes/left-right", items=40)
    unread = "a dog and a cup"
    mixed = [(unread, options[1]) if row < 10 else options for row, options in enumerate(benchmark.captions)]
    pairs_ = dataclasses.replace(benchmark, captions=tuple(mixed))
    items = per_item(pocket, pairs_, [Displacement()])
    assert items.covered.tolist() == [False] * 10 + [True] * 30 and items.scored.all()
    own = score_items(pocket, pairs_, Displacement(), encode_benchmark(pocket, pairs_))
    assert (own[:10, 0] == 0).all() and (own[:10, 1] != 0).all()
    many = choices(pairs_)
    items = per_item(pocket, many, [Displacement(), Deployed()])
    table = summarise(items)
    assert table.n.tolist() == [30, 40] and table.coverage.tolist() == [0.75, 1.0]
    # no item covered at all: said, not made up
    none = dataclasses.replace(
        benchmark, captions=((unread, unread, unread),) * 40, correct=np.zeros(40, int)
    )
    row = evaluate(pocket, none, [Displacement()]).loc["ADR excess"]
    assert row.n == 0 and row.coverage == 0


def test_statements_by_sign_and_by_oracle(pocket):
    benchmark = load_benchmark("scenes/left-right", items=400)
    table = evaluate(pocket, statements(benchmark), [Deployed(), Displacement("excess")])
    assert table.rule.tolist() == ["oracle threshold", "sign"]
    assert table.accuracy["ADR excess"] > 0.9 and abs(table.null["ADR excess"] - 0.5) < 0.1
    assert 0.5 <= table.null["deployed"] < 0.6  # fitted on its own labels: never below one half
    scores = score_items(pocket, statements(benchmark), Displacement(), encode_benchmark(pocket, benchmark))
    said_true = scores[:, 0] > 0
    assert table.accuracy["ADR excess"] == (said_true == (benchmark.correct == 0)).mean()


def test_auroc_and_selection_against_loops(pocket):
    benchmark = load_benchmark("scenes/left-right/held-out-style", items=200)
    items = per_item(pocket, benchmark, [Displacement("dense")], derangements=2)
    row = summarise(items).iloc[0]
    features = pocket.encode_images(benchmark.images)
    own = score_items(pocket, benchmark, Displacement("dense"), features)
    right, every = benchmark.correct, np.arange(200)
    margin = own[every, right] - own[every, 1 - right]
    null, credits = [], []
    for partners in random_derangements(benchmark.source, 2, 0):
        scores = score_items(pocket, benchmark, Displacement("dense"), features, benchmark.image[partners])
        null.append(scores[every, right] - scores[every, 1 - right])
        credits.append((null[-1] > 0).mean())
    assert row.null == pytest.approx(np.mean(credits))
    labels = np.r_[np.ones(200), np.zeros(400)]
    assert row.auroc == pytest.approx(roc_auc_score(labels, np.r_[margin, *null]), abs=1e-4)
    confident = np.argsort(-np.abs(margin), kind="stable")[:60]
    assert row.selective == pytest.approx((margin[confident] > 0).mean())
    curve = risk_coverage(items)
    assert len(curve) == 200 and curve.accuracy.iloc[-1] == pytest.approx(row.accuracy)
    assert curve.accuracy.iloc[59] == pytest.approx(row.selective)


@given(st.lists(st.tuples(st.integers(0, 2), st.sampled_from([0.0, 0.5, 1.0])), min_size=1, max_size=6))
@settings(max_examples=60)
def test_selection_takes_equally_confident_items_in_the_mean_order(pairs_):
    confidence, values = np.array([float(c) for c, _ in pairs_]), np.array([v for _, v in pairs_])
    expected = np.zeros(len(pairs_))
    orders = [
        p for p in itertools.permutations(range(len(pairs_))) if (np.diff(confidence[list(p)]) <= 0).all()
    ]
    for order in orders:
        expected += np.cumsum(values[list(order)]) / len(orders)
    np.testing.assert_allclose(_kept_credit(confidence, values), expected)


def test_micro_and_macro(pocket):
    benchmark = load_benchmark("scenes/left-right", items=80)
    group = np.where(np.arange(80) < 20, "few", "many")
    items = per_item(pocket, dataclasses.replace(benchmark, group=group), [Deployed()])
    row, groups = summarise(items).iloc[0], summarise(items, by="group")
    assert groups.n.tolist() == [20, 60] and groups.index.names == ["readout", "group"]
    assert row.macro == pytest.approx(groups.accuracy.mean())
    assert row.accuracy == pytest.approx((20 * groups.accuracy.iloc[0] + 60 * groups.accuracy.iloc[1]) / 80)
    assert row.macro_gain == pytest.approx(groups.gain.mean())


def test_kept_items_come_back_and_say_what_made_them(pocket, tmp_path):
    benchmark = load_benchmark("scenes/left-right", items=40)
    items = per_item(pocket, benchmark, [Deployed(), Displacement()], derangements=2, seed=5)
    save_items(items, tmp_path / "kept" / "items.parquet")
    again = load_items(tmp_path / "kept" / "items.parquet")
    pd.testing.assert_frame_equal(items, again)
    assert again.attrs == items.attrs
    assert again.attrs["encoder"] == "pocket" and again.attrs["null"] == "2 random derangements, seed 5"
    assert __version__ in again.attrs["versions"] and len(again.attrs["weights"]) == 32
    pd.testing.assert_frame_equal(summarise(again), summarise(items))
    with pytest.raises(FileNotFoundError, match="No kept items"):
        load_items(tmp_path / "nothing.parquet")


def test_compare(pocket):
    benchmark = load_benchmark("scenes/left-right", items=200)
    items = per_item(pocket, benchmark, [Deployed(), Displacement()])
    one, other = (items[items.readout == name] for name in ("ADR excess", "deployed"))
    row = compare(one, other)
    a, b = one.credit.to_numpy(), other.credit.to_numpy()
    assert row.difference == pytest.approx(a.mean() - b.mean())
    assert row.only_one == (a > b).sum() and row.only_other == (a < b).sum()
    assert row.low <= row.difference <= row.high
    assert compare(one, one)[["difference", "low", "high"]].tolist() == [0, 0, 0]
    with pytest.raises(ValueError, match="one readout each"):
        compare(items, one)
    with pytest.raises(ValueError, match="different items"):
        compare(one, one.iloc[:-4])


# --- without the picture --------------------------------------------------------------------------


def test_text_alone_tells_a_prior_and_nothing_else(pocket):
    balanced = load_benchmark("scenes/above-below", items=800)
    row = summarise(text_only(balanced)).iloc[0]
    assert row.low <= 0.5 <= row.high and row.gain == 0 and row.null == row.accuracy
    prior = load_benchmark("scenes/prior", items=800)
    told = summarise(text_only(prior)).iloc[0]
    assert 0.85 < told.accuracy < 0.95
    trained = TextPrior(load_benchmark("scenes/prior", items=800, seed=1))
    table = evaluate(pocket, prior, [trained, Deployed(), Displacement()])
    assert table.null["text prior"] > 0.85 and table.gain["text prior"] == 0
    assert table.gain["ADR excess"] > 0.3 and table.null["ADR excess"] < 0.65
    assert statements_told(prior) > 0.8


def statements_told(prior) -> float:
    return summarise(text_only(statements(prior))).accuracy.iloc[0]


def test_a_readout_of_texts_opens_no_picture(tmp_path):
    benchmark = dataclasses.replace(
        load_benchmark("scenes/prior", items=200), images=PictureFiles([tmp_path / "none.png"] * 100)
    )
    table = evaluate(None, benchmark, [TextPrior(load_benchmark("scenes/prior", items=200, seed=1))])
    assert table.accuracy.iloc[0] > 0.8
    assert text_only(benchmark).credit.mean() > 0.8


def test_text_only_keeps_apart_what_balances():
    """Items that balance each other in two folds would teach each other the wrong answer."""
    n = 40
    captions = tuple(
        (f"a {w} left of a cup", f"a {w} right of a cup")
        for w in ("dog", "cat", "ox", "tv")
        for _ in range(10)
    )
    benchmark = Items(
        "made", np.zeros((n, 1, 1, 3)), np.arange(n), captions, np.arange(n) % 2, np.full(n, "all")
    )
    assert text_only(benchmark, together=np.arange(n)).credit.mean() < 0.4
    for together in (None, same_offer(benchmark.captions)):
        assert text_only(benchmark, folds=4, together=together).credit.mean() == 0.5
        with pytest.raises(ValueError, match="5 folds need as many sources"):
            text_only(benchmark, together=together)


def test_balance_certificate(pocket):
    prior = load_benchmark("scenes/prior", items=1200)
    table = balance_certificate(pocket, prior, [Displacement()])
    assert table.null["all", "text only"] > 0.85
    assert table.null_low["balanced", "text only"] <= 0.5 <= table.null_high["balanced", "text only"]
    assert 0 < table.n["balanced", "text only"] < 400
    assert table.n["balanced", "ADR excess"] == table.n["balanced", "text only"]
    with pytest.raises(ValueError, match="balance each other"):
        balance_certificate(None, prior.select(slice(0, 4)))


def test_the_kit_agrees_with_the_evaluation_written_out(pocket):
    benchmark = load_benchmark("scenes/left-right/held-out-style", items=40)
    table = evaluate(pocket, benchmark, [Deployed(), Displacement("excess"), Displacement("dense")])
    for name, (accuracy, null) in reference_evaluate(pocket, benchmark).items():
        row = table.loc[name if name == "deployed" else f"ADR {name}"]
        assert (row.accuracy, row.null) == (accuracy, null)
    features = encode_benchmark(pocket, benchmark)
    for readout in (Deployed(), Displacement("excess"), Displacement("dense")):
        scores = score_items(pocket, benchmark, readout, features)
        one = reference_scores(pocket, benchmark.images[3], benchmark.captions[7][0])
        assert scores[7, 0] == pytest.approx(one[readout.name.removeprefix("ADR ")], abs=1e-6)


def test_right_answers_may_be_booleans_and_not_fractions():
    benchmark = load_benchmark("scenes/left-right", items=8)
    same = dataclasses.replace(benchmark, correct=benchmark.correct == 1)
    assert same.correct.dtype == int and (same.correct == benchmark.correct).all()
    assert credit(np.array([[0.0, 1.0]] * 8), benchmark.correct == 1).tolist() == benchmark.correct.tolist()
    with pytest.raises(ValueError, match="'correct' holds float64, not integers"):
        dataclasses.replace(benchmark, correct=benchmark.correct + 0.5)


# --- what a kept run is, and what else must be refused ----------------------------------------------


def test_a_kept_run_knows_its_pictures_features_and_readouts(pocket, tmp_path):
    benchmark = load_benchmark("scenes/left-right", items=40)
    pictures = [Image.fromarray(image) for image in benchmark.images]
    listed = dataclasses.replace(benchmark, images=pictures)
    mirrored = dataclasses.replace(benchmark, images=[picture.transpose(0) for picture in pictures])
    per_item(pocket, listed, [Displacement()], keep=tmp_path / "a")
    with pytest.raises(ValueError, match="holds a run of another"):
        per_item(pocket, mirrored, [Displacement()], keep=tmp_path / "a")
    features = pocket.encode_images(benchmark.images)
    per_item(pocket, listed, [Displacement()], features=features, keep=tmp_path / "b")
    with pytest.raises(ValueError, match="holds a run of another"):
        per_item(
            pocket, listed, [Displacement()], features=features[list(range(20))[::-1]], keep=tmp_path / "b"
        )
    probes = [PatchProbe(pocket, random_scenes(60, seed)) for seed in (0, 1)]
    per_item(pocket, listed, probes[:1], keep=tmp_path / "c")
    per_item(pocket, listed, [PatchProbe(pocket, random_scenes(60, 0))], keep=tmp_path / "c")
    with pytest.raises(ValueError, match="holds a run of another"):
        per_item(pocket, listed, probes[1:], keep=tmp_path / "c")
    unnamed = Constant()
    unnamed.function = lambda caption: 0
    with pytest.raises(ValueError, match="constant cannot be told apart"):
        per_item(pocket, listed, [unnamed], keep=tmp_path / "d")


def test_features_and_indices_are_checked(pocket):
    benchmark = load_benchmark("scenes/left-right", items=40)
    features = pocket.encode_images(benchmark.images)
    first = (np.arange(10), features[:10])
    for wrong in ([first, first], [first], [(np.arange(20), features[:10]), (np.arange(10), features[10:])]):
        with pytest.raises(ValueError, match="Features of"):
            per_item(pocket, benchmark, [Deployed()], features=wrong)
    for image in (benchmark.image[:5], benchmark.image - 1, benchmark.image + 1):
        with pytest.raises(ValueError, match="one index below 20 for each of the 40 items"):
            score_items(pocket, benchmark, Deployed(), features, image)
    for chunk in (0, -1):
        with pytest.raises(ValueError, match="at least one picture"):
            per_item(pocket, benchmark, [Deployed()], chunk=chunk)
    with pytest.raises(ValueError, match="deployed looks at pictures: pass an encoder"):
        evaluate(None, benchmark, [Deployed()])
    with pytest.raises(ValueError, match="wants to encode texts: pass the encoder"):
        evaluate(None, benchmark, [Deployed()], features=features)
    bad = Displacement()
    bad.covers = lambda captions: np.ones(3)
    with pytest.raises(ValueError, match=r"ADR excess.covers returned shape \(3,\) for 80 captions"):
        evaluate(pocket, benchmark, [bad])
    with pytest.raises(ValueError, match="share of the items"):
        summarise(per_item(pocket, benchmark, [Deployed()]), selected=30)


def test_pictures_that_nobody_asks_about_stay_closed(pocket, tmp_path):
    benchmark = load_benchmark("scenes/left-right", items=8)
    for index, image in enumerate(benchmark.images):
        Image.fromarray(image).save(tmp_path / f"{index}.png")
    paths = [tmp_path / f"{index}.png" for index in range(4)]
    more = dataclasses.replace(benchmark, images=PictureFiles([*paths, tmp_path / "gone.png"]))
    assert len(per_item(pocket, more, [Deployed()])) == 8
    with pytest.raises(FileNotFoundError, match="image 4, which no item asks about"):
        encode_benchmark(pocket, more)


def test_picture_files_take_masks():
    files = PictureFiles(list("abcd"), [None, None, (0, 0, 1, 1), None])
    for index in (
        np.array([False, True, True, False]),
        [False, True, True, False],
        slice(1, 3),
        [1, 2],
        [-3, 2],
    ):
        assert [path.name for path in files[index].paths] == ["b", "c"]
        assert files[index].boxes == (None, (0, 0, 1, 1))
    assert len(files.missing()) == 4


def test_direction_of_a_readout_covers_what_that_readout_covers(pocket):
    of_words = DirectionOf(Displacement(words="content"))
    assert of_words.covers(["a dog left of a cup", "a tv left of a dog", "a dog and a cup"]).tolist() == [
        True,
        False,
        False,
    ]
    assert DirectionOf(Deployed()).covers(["a dog left of a cup", "a dog and a cup"]).tolist() == [
        True,
        False,
    ]
    benchmark = load_benchmark("scenes/prior", items=40)
    prior = DirectionOf(TextPrior(load_benchmark("scenes/prior", items=400, seed=1)))
    table = evaluate(None, benchmark, [prior])
    assert table.accuracy.iloc[0] > 0.7 and table.gain.iloc[0] == 0
    probe = PatchProbe(pocket, random_scenes(60, 0))
    assert probe.covers(["a dog left of a cup", "a dog left of a teapot", "a dog"]).tolist() == [
        True,
        False,
        False,
    ]


def test_texts_alone_and_pictures_in_one_call(pocket):
    benchmark = load_benchmark("scenes/prior", items=80)
    prior = TextPrior(load_benchmark("scenes/prior", items=400, seed=1))
    mixed = evaluate(pocket, benchmark, [Deployed(), prior, Displacement()], derangements=3)
    pd.testing.assert_frame_equal(
        mixed.loc[["deployed", "ADR excess"]],
        evaluate(pocket, benchmark, [Deployed(), Displacement()], derangements=3),
    )
    assert mixed.gain["text prior"] == 0


def test_comparing_needs_one_benchmark(pocket):
    one = per_item(pocket, load_benchmark("scenes/left-right", items=40), [Deployed()])
    other = per_item(pocket, load_benchmark("scenes/above-below", items=40), [Deployed()])
    with pytest.raises(ValueError, match="different items"):
        compare(one, other)


def test_a_certificate_by_relation_is_not_biased():
    """A surplus of left in training is a surplus of right in the rest: priors are trained on balanced parts."""
    rng = np.random.default_rng(0)
    benchmark = load_benchmark("scenes/left-right", items=2000)
    told = []
    for _ in range(4):
        part = benchmark.select(np.sort(rng.choice(2000, 240, replace=False)))
        part = part.select(direction_balance(part.captions, part.correct, "relation"))
        told.append(text_only(part, balance="relation").credit.mean())
    assert 0.46 < np.mean(told) < 0.54


def test_kept_certificates_have_folders_of_their_own(pocket, tmp_path):
    prior = load_benchmark("scenes/prior", items=400)
    table = balance_certificate(pocket, prior, [Deployed()], keep=tmp_path)
    assert {path.name for path in tmp_path.iterdir()} == {"all", "balanced"}
    pd.testing.assert_frame_equal(table, balance_certificate(pocket, prior, [Deployed()]))
