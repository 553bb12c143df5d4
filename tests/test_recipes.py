"""The recipes: training resumes to the same weights, exports what loads, and its data are pinned."""

from __future__ import annotations

import sys
from pathlib import Path

import numpy as np
import pytest
import torch

ROOT = Path(__file__).parents[1]
sys.path.insert(0, str(ROOT / "recipes"))
import train_pocket  # noqa: E402

from readout_utils.encoders import load_encoder  # noqa: E402
from readout_utils.scenes import HELD_OUT_STYLE, STYLES, draw_scenes, held_out_pairs, random_scenes  # noqa: E402

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


def test_an_export_loads(tmp_path):
    model = train_pocket.train("pocket", 1, tmp_path / "run", SETTINGS, compiled=False)
    train_pocket.export(model, "pocket", tmp_path / "out", tmp_path / "run")
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


def test_shipped_card_belongs_to_the_shipped_weights():
    folder = ROOT / "readout_utils" / "data" / "pocket"
    import json

    training = json.loads((folder / "training.json").read_text())
    assert training["settings"] == train_pocket.SETTINGS
    assert json.loads((folder / "open_clip_config.json").read_text())[
        "model_cfg"
    ] == train_pocket.model_config("pocket")
    assert str(training["steps"]) in (folder / "curve.csv").read_text().splitlines()[-1]
    assert f"{training['steps']:,} steps" in (folder / "README.md").read_text()


def test_shipped_measures_are_of_the_shipped_weights():
    """A part of the measuring command, run again on the shipped weights, gives the shipped numbers."""
    import pandas as pd
    from measure_pocket import ITEMS, misses, recognition

    from readout_utils.benchmarks import load_benchmark
    from readout_utils.evaluation import evaluate
    from readout_utils.readouts import Deployed, Displacement

    table = pd.read_csv(ROOT / "readout_utils" / "data" / "pocket" / "measures.csv", index_col="measure")
    encoder = load_encoder("pocket")
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
    card = (ROOT / "readout_utils" / "data" / "pocket" / "README.md").read_text()
    for miss in misses(table):
        assert miss in card  # a target that is missed is said to be missed
