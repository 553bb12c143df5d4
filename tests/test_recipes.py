"""The recipes: training resumes to the same weights, exports what loads, and its data are pinned."""

from __future__ import annotations

import json
import sys
from collections import Counter
from dataclasses import asdict
from pathlib import Path

import numpy as np
import open_clip
import pandas as pd
import pytest
import torch
from safetensors.torch import load_file

ROOT = Path(__file__).parents[1]
sys.path.insert(0, str(ROOT / "recipes"))
import finetune_pocket  # noqa: E402
import measure_zoo  # noqa: E402
import train_local  # noqa: E402
import train_pocket  # noqa: E402
import train_zoo  # noqa: E402
from measure_pocket import ITEMS, misses, recognition  # noqa: E402

from readout_utils import evaluation  # noqa: E402
from readout_utils.benchmarks import load_benchmark  # noqa: E402
from readout_utils.captions import CaptionError, parse_conjunction, parse_relation, variants  # noqa: E402
from readout_utils.encoders import load_encoder  # noqa: E402
from readout_utils.evaluation import evaluate, score_items  # noqa: E402
from readout_utils.hard_positives import summarise  # noqa: E402
from readout_utils.readouts import Deployed, Displacement  # noqa: E402
from readout_utils.scenes import HELD_OUT_STYLE, STYLES, draw_scenes, held_out_pairs, random_scenes  # noqa: E402
from readout_utils.zoo import VisionEncoder, build_trunk  # noqa: E402

SETTINGS = {**train_pocket.SETTINGS, "batch": 8}


def test_an_interrupted_training_resumes_to_the_same_weights(tmp_path, monkeypatch):
    monkeypatch.setattr(train_pocket, "SAVE_EVERY", 2)
    straight = train_pocket.train("pocket", 5, tmp_path / "straight", SETTINGS, compiled=False)
    real_batch = train_pocket.batch

    def interrupted(step, *rest):
        if step == 3:
            raise KeyboardInterrupt
        return real_batch(step, *rest)

    monkeypatch.setattr(train_pocket, "batch", interrupted)
    with pytest.raises(KeyboardInterrupt):
        train_pocket.train("pocket", 5, tmp_path / "broken", SETTINGS, compiled=False)
    monkeypatch.setattr(train_pocket, "batch", real_batch)
    resumed = train_pocket.train("pocket", 5, tmp_path / "broken", SETTINGS, compiled=False)
    for (name, one), two in zip(straight.state_dict().items(), resumed.state_dict().values(), strict=True):
        torch.testing.assert_close(one, two, atol=1e-6, rtol=0, msg=name)


def test_a_run_is_not_continued_with_other_settings(tmp_path):
    train_pocket.train("pocket", 1, tmp_path, SETTINGS, compiled=False)
    with pytest.raises(SystemExit, match="other settings or steps"):
        train_pocket.train("pocket", 2, tmp_path, SETTINGS, compiled=False)


@pytest.mark.parametrize("family", train_pocket.FAMILIES)
def test_an_export_loads(tmp_path, family):
    model = train_pocket.train(family, 1, tmp_path / "run", SETTINGS, compiled=False)
    train_pocket.export(model, family, tmp_path / "out", tmp_path / "run")
    encoder = load_encoder(f"local-dir:{tmp_path / 'out'}")
    features = encoder.encode_images(draw_scenes(random_scenes(2, 0)))
    assert features.patches.shape == (2, 64, 128)
    assert encoder.encode_texts(["a dog to the left of an ice cream"]).shape == (1, 128)


def test_training_never_sees_what_is_held_out(monkeypatch):
    seen = []
    monkeypatch.setattr(
        train_pocket, "draw_scenes", lambda scenes: seen.append(scenes) or draw_scenes(scenes)
    )
    tokenizer = train_pocket.WordTokenizer(train_pocket.vocabulary(), train_pocket.CONTEXT)
    for step in range(20):
        train_pocket.batch(step, SETTINGS, tokenizer)
    held = held_out_pairs()
    for scenes in seen:
        assert STYLES.index(HELD_OUT_STYLE) not in scenes.style
        for row in scenes.noun:
            row = row[row >= 0]
            assert not held[np.ix_(row, row)].any()


def test_the_rate_rises_and_falls():
    rates = [train_pocket.rate(step, 1000, train_pocket.SETTINGS) for step in range(1000)]
    peak = rates.index(max(rates))
    assert 0.8 < rates[peak] < 1
    assert rates[:peak] == sorted(rates[:peak])
    assert rates[peak:] == sorted(rates[peak:], reverse=True)
    assert 0 < rates[-1] < 0.01


def test_patches_are_left_out_until_the_last_steps():
    assert train_pocket.dropout(0, 1000, train_pocket.SETTINGS) == train_pocket.SETTINGS["patch_dropout"]
    assert train_pocket.dropout(999, 1000, train_pocket.SETTINGS) == 0


@pytest.mark.parametrize("family", train_pocket.FAMILIES)
def test_shipped_card_belongs_to_the_shipped_weights(family):
    folder = ROOT / "readout_utils" / "data" / family
    training = json.loads((folder / "training.json").read_text())
    assert training["settings"] == train_pocket.SETTINGS
    assert json.loads((folder / "open_clip_config.json").read_text())[
        "model_cfg"
    ] == train_pocket.model_config(family)
    assert str(training["steps"]) in (folder / "curve.csv").read_text().splitlines()[-1]
    assert f"{training['steps']:,} steps" in (folder / "README.md").read_text()


@pytest.mark.parametrize("family", train_pocket.FAMILIES)
def test_shipped_measures_are_of_the_shipped_weights(family):
    """A part of the measuring command, run again on the shipped weights, gives the shipped numbers."""
    table = pd.read_csv(ROOT / "readout_utils" / "data" / family / "measures.csv", index_col="measure")
    encoder = load_encoder(family)
    benchmark = load_benchmark("scenes/left-right/held-out-style", items=ITEMS)
    features = encoder.encode_images(benchmark.images)
    again = evaluate(encoder, benchmark, [Deployed(), Displacement("excess")], features=features)
    for readout, row in again.iterrows():
        shipped = table.loc[f"{readout}, left-right, held-out style"]
        assert row["accuracy"] == pytest.approx(shipped["value"], abs=0.002)
        assert row["null"] == pytest.approx(shipped["null"], abs=0.002)
    assert recognition(encoder, benchmark, features)[0] == pytest.approx(
        table.value["recognition, held-out style"], abs=0.002
    )
    card = (ROOT / "readout_utils" / "data" / family / "README.md").read_text()
    for miss in misses(table):
        assert miss in card  # a target that is missed is said to be missed


# --- fine-tunes -----------------------------------------------------------------------------------

TUNE = {**finetune_pocket.SETTINGS, "steps": 2, "batch": 8, "warmup": 1}


def test_fine_tunes_see_the_same_pictures_and_captions():
    one, two = finetune_pocket.batch(3, 1, 16), finetune_pocket.batch(3, 1, 16)
    assert np.array_equal(one[0], two[0]) and one[1] == two[1]
    assert one[1] != finetune_pocket.batch(4, 1, 16)[1] and one[1] != finetune_pocket.batch(3, 2, 16)[1]
    words = set(train_pocket.vocabulary())
    for caption, positive, negative, reworded in one[1]:
        assert len({caption, positive, negative, reworded}) == 4 or negative == reworded
        for text, wrong in ((caption, negative), (positive, reworded)):
            made = {v.text: v.positive for v in variants(text)}
            assert not made.get(wrong, False)
        assert {v.text: v.positive for v in variants(caption)}[positive]
        assert set(f"{caption} {positive} {negative} {reworded}".split()) <= words


def test_captions_of_fine_tunes_are_true():
    """Against the scenes themselves: relations by centres, sizes by the threshold of big."""
    rng = np.random.default_rng(0)
    scenes = random_scenes(200, 5, stickers=(2,))
    kinds = Counter()
    for index in range(200):
        caption = finetune_pocket.describe(scenes, index, rng)
        here = scenes.nouns(index)
        try:
            relation = parse_relation(caption)
        except CaptionError:
            phrases = parse_conjunction(caption)
            assert sorted(p.noun for p in phrases) == sorted(here)
            for phrase in phrases:
                big = scenes.size[index, here.index(phrase.noun)] >= 28
                assert phrase.attribute in ("", *(("big", "large") if big else ("small", "little")))
            kinds["sizes" if phrases[0].attribute else "bare"] += 1
            continue
        s, o = here.index(relation.subject), here.index(relation.object)
        apart = [int(v[index, s]) - int(v[index, o]) for v in (scenes.x, scenes.y)]
        assert np.dot(apart, relation.axis) >= 10
        kinds["relation"] += 1
    assert min(kinds[kind] for kind in ("relation", "sizes", "bare")) > 20


def test_the_loss_is_negclips():
    """Against cross entropies written out, image by image and caption by caption."""
    generator = torch.Generator().manual_seed(0)
    image, text, negative = (
        torch.nn.functional.normalize(torch.randn(4, 8, generator=generator), dim=-1) for _ in range(3)
    )
    total = 0.0
    for j in range(4):
        row = [float(10 * image[j] @ t) for t in [*text, *negative]]
        column = [float(10 * i @ text[j]) for i in image]
        total += np.log(np.exp(row).sum()) - row[j] + np.log(np.exp(column).sum()) - column[j]
    assert float(finetune_pocket.contrastive_loss(image, text, negative, 10.0)) == pytest.approx(
        total / 8, rel=1e-5
    )
    plain = open_clip.ClipLoss()(image, text, torch.tensor(10.0))
    torch.testing.assert_close(finetune_pocket.contrastive_loss(image, text, None, 10.0), plain)


def test_a_fine_tune_is_kept_and_exported(tmp_path, pocket, monkeypatch):
    encoder = finetune_pocket.train("pocket-positives", 1, tmp_path / "run", TUNE)
    changed = {
        n: v
        for n, v in encoder.model.state_dict().items()
        if not torch.equal(v, pocket.model.state_dict()[n])
    }
    assert len(changed) > 50 and "logit_scale" not in changed
    assert not any(p.requires_grad for p in encoder.model.parameters()) and not encoder.model.training
    again = finetune_pocket.train("pocket-positives", 1, tmp_path / "run", TUNE)
    for (name, one), two in zip(
        encoder.model.state_dict().items(), again.model.state_dict().values(), strict=True
    ):
        assert torch.equal(one, two), name
    with pytest.raises(SystemExit, match="other settings"):
        finetune_pocket.train("pocket-positives", 2, tmp_path / "run", TUNE)
    table = pd.DataFrame(
        [{"encoder": "pocket-positives", "seed": 1, "readout": "deployed", "group": "macro"}]
    ).assign(
        **{
            f"{m}{end}": 0.5
            for m in ("original", "augmented", "brittleness")
            for end in ("", "_low", "_high")
        }
    )
    finetune_pocket.export("pocket-positives", tmp_path / "run", tmp_path / "out", table)
    assert "50% give their place" in (tmp_path / "out" / "README.md").read_text()
    loaded = load_encoder(f"local-dir:{tmp_path / 'out'}")
    pictures = draw_scenes(random_scenes(4, 0))
    one, two = (e.encode_images(pictures).pooled for e in (encoder, loaded))
    torch.testing.assert_close(one, two, atol=5e-3, rtol=0)  # half precision on disk
    assert (tmp_path / "out" / "open_clip_model.safetensors").stat().st_size < 2.7e6


def test_shipped_text_only_table_is_what_the_kit_measures(shared):
    shipped = pd.read_csv(ROOT / "readout_utils" / "data" / "text_only.csv", index_col="benchmark")
    for name, folder in (("vsr/horizontal", "vsr"), ("valse/relations", "valse")):
        row = evaluation.summarise(
            evaluation.text_only(load_benchmark(name, root=shared / "benchmarks" / folder))
        ).iloc[0]
        assert row.n == shipped.n[name]
        # solvers differ in the last digits from machine to machine
        assert row.accuracy == pytest.approx(shipped.accuracy[name], abs=0.01)


LOCAL = {
    **train_local.SETTINGS, "batch": 12, "start": 2, "steps": 2, "warmup": 1, "scenes": 4, "directions": 3, "rank_scenes": 2,
}  # fmt: skip


class Linear(torch.nn.Module):
    """A linear map of pixels in place of an encoder."""

    def __init__(self, matrix):
        super().__init__()
        self.matrix = matrix

    def embed(self, pixels):
        return pixels.flatten(1).to(self.matrix) @ self.matrix


@pytest.mark.parametrize("term", train_local.TERMS)
def test_every_local_term_trains_from_the_same_start(tmp_path, term):
    trunk = train_local.train(term, 1, tmp_path / term, LOCAL)
    start = train_local.train_start(1, tmp_path / "start-1", LOCAL).trunk
    again = train_local.train(term, 1, tmp_path / term, LOCAL)  # from the last checkpoint
    for one, two in zip(trunk.parameters(), again.parameters(), strict=True):
        assert torch.equal(one, two)
    assert any(
        not torch.equal(one, two) for one, two in zip(trunk.parameters(), start.parameters(), strict=True)
    )
    assert VisionEncoder(trunk, name=term).embed(draw_scenes(random_scenes(3, 0))).shape == (3, 128)
    with pytest.raises(SystemExit, match="other settings"):
        train_local.train(term, 1, tmp_path / term, {**LOCAL, "weight": 9.0})
    with pytest.raises(SystemExit, match="other settings"):
        train_local.train(term, 1, tmp_path / term, {**LOCAL, "start": 1})
    with pytest.raises(SystemExit, match="Unknown term"):
        train_local.train("spin", 1, tmp_path / "spin", LOCAL)


def test_local_runs_go_on_with_the_scenes_after_the_starts(tmp_path, monkeypatch):
    asked = []
    batch = train_local.batch
    monkeypatch.setattr(train_local, "batch", lambda step, *rest: asked.append(step) or batch(step, *rest))
    train_local.train("none", 1, tmp_path / "none-1", LOCAL)
    train_local.train("swap", 1, tmp_path / "swap-1", LOCAL)
    assert asked == [0, 1, 2, 3, 2, 3]  # one start for both


def test_the_ratio_term_is_a_hinge_on_the_squared_sensitivities_of_a_linear_map():
    torch.manual_seed(0)
    model = Linear(torch.randn(64 * 64 * 3, 7, dtype=torch.float64))
    scenes = train_local.crowded(random_scenes(40, 3), 6)
    x, swapped, other = (
        train_local.to_pixels(s).flatten(1).double()
        for s in (scenes, train_local.change_scenes(scenes, "swap", 0), train_local.disturb(scenes, 0))
    )
    m = model.matrix
    rates = [(((y - x) @ m) ** 2).sum(1) / ((y - x) ** 2).sum(1) for y in (swapped, other)]
    gap = (rates[0] / rates[1]).log()
    for target in (0.5, 4.0, 50.0):
        expected = (np.log(target) - gap).clamp(min=0).mean()
        got = train_local.ratio_term(model, scenes, 0, "swap", {**LOCAL, "target": target})
        assert float(got) == pytest.approx(float(expected), rel=1e-3, abs=1e-6)
    # scale is not heard, and of a linear map all the way says what a small step says
    one, two, three = (
        train_local.ratio_term(e, scenes, 0, term, LOCAL)
        for e, term in ((model, "swap"), (Linear(2 * m), "swap"), (model, "far"))
    )
    assert float(one) == pytest.approx(float(two), rel=1e-6) == pytest.approx(float(three), rel=1e-6)


def test_ablations_of_the_local_term_move_one_half_of_the_ratio():
    torch.manual_seed(0)
    matrix = torch.randn(64 * 64 * 3, 7, dtype=torch.float64, requires_grad=True)
    scenes = train_local.crowded(random_scenes(40, 3), 6)
    x, swapped, other, noun = (
        train_local.to_pixels(s).flatten(1).double()
        for s in (scenes, train_local.change_scenes(scenes, "swap", 0), train_local.disturb(scenes, 0),
                  train_local.change_scenes(scenes, "noun", 0))
    )  # fmt: skip

    def log_rate(y, m):
        return ((((y - x) @ m) ** 2).sum(1) / ((y - x) ** 2).sum(1)).log()

    high = {**LOCAL, "target": 1e6}  # the hinge is open for every scene
    fixed = matrix.detach()
    for term, gap in (
        ("swap-only", lambda m: log_rate(swapped, m) - log_rate(noun, fixed)),
        ("quiet-only", lambda m: log_rate(noun, fixed) - log_rate(other, m)),
        ("noun", lambda m: log_rate(noun, m) - log_rate(other, m)),
    ):
        got = torch.autograd.grad(train_local.ratio_term(Linear(matrix), scenes, 0, term, high), matrix)[0]
        expected = torch.autograd.grad((np.log(1e6) - gap(matrix)).mean(), matrix)[0]
        assert torch.allclose(got, expected, rtol=1e-3, atol=1e-3 * float(expected.abs().max())), term


def test_the_rank_term_is_nothing_for_a_map_that_treats_all_directions_alike():
    scenes = random_scenes(3, 0, stickers=(2,))
    identity = Linear(torch.eye(64 * 64 * 3, dtype=torch.float64))
    assert train_local.rank_term(identity, scenes, 0, LOCAL).item() == pytest.approx(0, abs=1e-4)
    torch.manual_seed(0)
    flat = Linear(torch.randn(64 * 64 * 3, 1, dtype=torch.float64) @ torch.ones(1, 5, dtype=torch.float64))
    assert train_local.rank_term(flat, scenes, 0, LOCAL).item() == pytest.approx(
        np.log(LOCAL["directions"]), abs=1e-3
    )


def test_shipped_local_runs_are_what_their_table_says():
    data = ROOT / "readout_utils" / "data"
    table = pd.read_csv(data / "local_term.csv", index_col=["term", "seed"])
    assert set(table.index) == {*train_local.runs(ROOT)}
    assert not table.isna().any(axis=None)
    sizes = train_local.FULL
    assert (table["settings"] == json.dumps({**train_local.SETTINGS, **asdict(sizes)})).all()
    scenes = random_scenes(3 * sizes.changed, sizes.seed + 7, stickers=(2,))
    for term in train_local.SHIPPED:
        trunk = build_trunk(train_local.SETTINGS["architecture"])
        trunk.load_state_dict(load_file(data / "local_term" / f"{term}.safetensors"))
        encoder = VisionEncoder(trunk, name=term)
        row = table.loc[(term, train_local.SEEDS[0])]
        for measure, value in measure_zoo.geometry(encoder, sizes).items():
            assert value == pytest.approx(float(row[measure]), rel=2e-2, abs=2e-3), (term, measure)
        got = train_local.log_ratio(encoder, scenes, sizes.seed, train_local.SETTINGS["step"])
        assert got == pytest.approx(row["log ratio, small step"], abs=0.05), term
        if term == "far":  # the one that is said to bind better
            again = measure_zoo.binding(encoder, sizes)["binding"]
            assert again == pytest.approx(row["binding"], abs=0.01)
            assert again > table.loc[("none", train_local.SEEDS[0]), "binding"] + 0.02


def test_a_nuisance_leaves_stickers_where_and_what_they_are():
    scenes = random_scenes(12, 1, stickers=(2,))
    changed = train_local.disturb(scenes, 0)
    for field in ("noun", "x", "y", "size", "mirrored"):
        assert np.array_equal(getattr(changed, field), getattr(scenes, field))
    differs = [
        (getattr(changed, f) != getattr(scenes, f)).reshape(12, -1).any(1)
        for f in ("noise", "corners", "style")
    ]
    assert np.array_equal(np.array(differs).argmax(0), np.arange(12) % 3)
    assert np.array_equal(np.array(differs).sum(0), np.ones(12))
    for seed in range(20):
        assert STYLES.index(HELD_OUT_STYLE) not in train_local.disturb(scenes, seed).style


def test_shipped_fine_tunes_are_what_their_table_says():
    """Of every shipped fine-tune, the deployed score on the whole benchmark; the runs themselves had full precision."""
    data = ROOT / "readout_utils" / "data"
    table = pd.read_csv(
        data / "hard_positives.csv", index_col=["encoder", "seed", "readout", "group"]
    ).sort_index()
    assert {(e, s) for e, s, *_ in table.index} == {("pocket", 0), *finetune_pocket.runs(ROOT)}
    hard = load_benchmark("scenes/hard-positives", items=1440)
    for kind in finetune_pocket.KINDS:
        training = json.loads((data / kind / "training.json").read_text())
        assert training["recipe"] == {
            "kind": kind, "seed": 1, "start": "pocket", **finetune_pocket.SETTINGS
        }  # fmt: skip
        encoder = load_encoder(kind)
        scores = score_items(encoder, hard, Deployed(), encoder.encode_images(hard.images))
        again = summarise(scores, hard.source, hard.group)
        for measure in ("original", "augmented", "brittleness"):
            shipped = table.loc[kind, 1, "deployed"][measure]
            assert again[measure]["macro"] == pytest.approx(shipped["macro"], abs=0.01)
            assert np.abs(again[measure] - shipped).max() < 0.05
        assert f"seed {training['recipe']['seed']}" in (data / kind / "README.md").read_text()
        relations = hard.select(hard.details.negative.isin(["nouns swapped", "relation flipped"]).to_numpy())
        seen = encoder.encode_images(relations.images)
        for row in finetune_pocket.wording(encoder, relations, seen, hard, scores).itertuples():
            assert row.accuracy == pytest.approx(table.accuracy[kind, 1, "deployed", row.group], abs=0.03)
        adr = summarise(
            score_items(encoder, relations, Displacement(), seen), relations.source, relations.group
        )
        assert adr.augmented["macro"] == pytest.approx(
            table.augmented[kind, 1, "ADR excess", "macro"], abs=0.01
        )


def test_a_claimed_run_is_left_to_its_process(tmp_path):
    runs = {name: tmp_path / name for name in "abc"}
    with train_zoo.claimed(runs["b"]) as mine:
        assert mine
        assert list(train_zoo.unclaimed(runs)) == [("a", runs["a"]), ("c", runs["c"])]
    assert len(list(train_zoo.unclaimed(runs))) == 3
