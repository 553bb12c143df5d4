"""Measure every encoder of the zoo: geometry, Jacobians, sensitivities, binding, recognition, in one table.

    python recipes/measure_zoo.py                          # all of the zoo and the pocket encoders
    python recipes/measure_zoo.py clip-vit timm:resnet10t  # some, or others by name
    python recipes/measure_zoo.py --quick --out quick.csv  # few scenes and inputs

Writes one row an encoder as soon as it is measured, and goes on after an interruption: rows made by the same settings
from the same weights are kept. All encoders see the same pictures, and everything is read at one point, the pooled
output of the trunk (see readout_utils.zoo), the binding probe included.
"""

from __future__ import annotations

import argparse
import json
from dataclasses import asdict, dataclass
from pathlib import Path

import numpy as np
import pandas as pd
import torch
from sklearn.linear_model import RidgeCV
from sklearn.preprocessing import StandardScaler
from train_zoo import MEAN, OUT, SETTINGS, STD, augment, noun_targets, read_about, to_pixels

from readout_utils.binding import binding_scenes, binding_table, draw_binding_scenes
from readout_utils.evaluation import bootstrap_interval
from readout_utils.geometry import geometry_table
from readout_utils.jacobian import (
    CHANGES,
    K,
    change_scenes,
    effective_rank,
    scene_sensitivity,
    singular_values,
)
from readout_utils.scenes import CANVAS, HELD_OUT_STYLE, draw_scenes, random_scenes
from readout_utils.zoo import VisionEncoder, load_vision_encoder, zoo_table

#: Numbers of leading singular values that the Jacobian's effective rank is reported for; K is the published one.
RANKS = (8, 16, K, 64)
#: Embeddings wider than this have their Jacobians by the randomized method.
WIDEST_EXACT = 2 * 6 * K
# beside the zoo's folder, where they are shipped
_POCKETS = ("pocket", "pocket-sigmoid")


@dataclass(frozen=True)
class Sizes:
    """How much is measured: pictures for geometry, inputs for Jacobians (and for their two controls), scenes for
    sensitivities and for probes.
    """

    scenes: int = 2000
    inputs: int = 48
    controls: int = 24
    changed: int = 200
    probe: int = 3000
    binding_train: int = 2400
    binding_test: int = 1600
    seed: int = 5


FULL = Sizes()
QUICK = Sizes(scenes=200, inputs=4, controls=4, changed=20, probe=400, binding_train=200, binding_test=120)


def second_views(images: np.ndarray, seed: int) -> np.ndarray:
    """Another view of every picture, as the zoo's training makes them: (B, 64, 64, 3) uint8."""
    torch.manual_seed(seed)
    views = (augment(to_pixels(images)) * STD + MEAN) * 255
    return views.round().clamp(0, 255).byte().permute(0, 2, 3, 1).numpy()


def noise_pictures(n: int, seed: int) -> np.ndarray:
    """Gaussian noise about grey, (n, 64, 64, 3) uint8: the control of inputs that show nothing."""
    noise = np.random.default_rng(seed).normal(127.5, 64, (n, CANVAS, CANVAS, 3))
    return noise.round().clip(0, 255).astype(np.uint8)


# --- one measure after the other ------------------------------------------------------------------


def geometry(encoder: VisionEncoder, sizes: Sizes) -> dict[str, float]:
    images = draw_scenes(random_scenes(sizes.scenes, sizes.seed))
    embeddings = encoder.embed(images)
    augmented = encoder.embed(second_views(images, sizes.seed))
    table = geometry_table(embeddings, augmented).to_dict()
    return {**table, "spread": float(embeddings.double().var(0).sum().sqrt())}


def spectra(encoder: VisionEncoder, images: np.ndarray, most: int = 2**24) -> torch.Tensor:
    """Leading singular values of every picture's Jacobian, (B, k) float64, k as many as ``RANKS`` asks for."""
    pixels = encoder.to_pixels(images)
    with torch.no_grad():
        width = encoder.function(pixels[:1]).shape[1]
    k = min(max(RANKS), width)
    method = "exact" if width <= WIDEST_EXACT else "randomized"
    at_once = max(1, min(4, most // (width * pixels[0].numel())))
    return torch.cat([singular_values(encoder.function, part, k, method) for part in pixels.split(at_once)])


def jacobians(encoder: VisionEncoder, sizes: Sizes) -> dict[str, float]:
    """Mean effective rank over scenes, over binding scenes and over noise, with standard errors."""
    inputs = {
        "": draw_scenes(random_scenes(sizes.inputs, sizes.seed + 1)),
        ", binding scenes": draw_binding_scenes(binding_scenes(sizes.controls, sizes.seed + 2)),
        ", noise": noise_pictures(sizes.controls, sizes.seed + 3),
    }
    row = {}
    for where, images in inputs.items():
        values = spectra(encoder, images)
        row[f"largest singular value{where}"] = float(values[:, 0].mean())
        for k in RANKS:
            if k <= values.shape[1]:
                ranks = effective_rank(values, k)
                name = "jacobian rank" + ("" if k == K else f" k={k}") + where
                row[name] = float(ranks.mean())
                if k == K:
                    row[f"{name}, error"] = float(ranks.std() / len(ranks) ** 0.5)
    return row


def sensitivities(encoder: VisionEncoder, sizes: Sizes, spread: float) -> dict[str, float]:
    """Answer to a change of the scene, per pixel change, over the embeddings' spread: mean over scenes."""
    scenes = random_scenes(2 * sizes.changed, sizes.seed + 4, stickers=(2,))
    # some stickers are their own mirror image: no scene with such a first one
    mirrored = draw_scenes(change_scenes(scenes, "mirror")) != draw_scenes(scenes)
    scenes = scenes[np.flatnonzero(mirrored.any((1, 2, 3)))[: sizes.changed]]
    return {
        f"sensitivity: {change}": float(
            scene_sensitivity(encoder.function, scenes, change, encoder.to_pixels, seed=sizes.seed).mean()
            / spread
        )
        for change in CHANGES
    }


def binding(encoder: VisionEncoder, sizes: Sizes) -> dict[str, float]:
    table = binding_table(
        encoder.embed, n_train=sizes.binding_train, n_test=sizes.binding_test, seed=sizes.seed
    )
    row = {}
    for name, score in table.iterrows():
        row[name] = score["accuracy"]
        if name in ("binding", "same/different", "shapes"):
            row[f"{name}, low"], row[f"{name}, high"] = score["low"], score["high"]
    return row


def recognition(encoder: VisionEncoder, sizes: Sizes) -> dict[str, float]:
    """Share of stickers among the two nouns that a linear probe scores highest, in scenes of two.

    Ridge regression of the nouns' presence on standardised embeddings, its strength by leave-one-out; trained on the
    training styles, asked about them and about the style that is held out. Chance is 1 in 32.
    """
    train = random_scenes(sizes.probe, sizes.seed + 5)
    scaler = StandardScaler()
    x = scaler.fit_transform(encoder.embed(draw_scenes(train)).numpy())
    probe = RidgeCV(alphas=np.logspace(-1, 5, 7)).fit(x, noun_targets(train).numpy())
    row = {}
    for where, styles in (("", {}), (", held-out style", {"styles": (HELD_OUT_STYLE,)})):
        test = random_scenes(max(4, sizes.probe // 2), sizes.seed + 6, stickers=(2,), **styles)
        scores = probe.predict(scaler.transform(encoder.embed(draw_scenes(test)).numpy()))
        top = torch.from_numpy(scores).topk(2).indices.numpy()
        hit = (top[:, :, None] == test.noun[:, None, :2]).any(1)
        row[f"recognition{where}"] = float(hit.mean())
        if not where:
            low, high = bootstrap_interval(hit.ravel(), np.arange(len(hit)).repeat(2))
            row["recognition, low"], row["recognition, high"] = float(low), float(high)
    return row


def measure(encoder: VisionEncoder, sizes: Sizes = FULL) -> dict[str, float]:
    """Every measure of one encoder, by name. Nothing in it is NaN."""
    row = geometry(encoder, sizes)
    row |= jacobians(encoder, sizes)
    row |= sensitivities(encoder, sizes, row["spread"])
    row |= binding(encoder, sizes)
    return row | recognition(encoder, sizes)


def shipped_pockets() -> list[str]:
    return [name for name in _POCKETS if (OUT.parent / name).is_dir()]


# --- the table ------------------------------------------------------------------------------------


def described(name: str, folder: Path) -> dict[str, object]:
    """What is known of an encoder beside its measures."""
    columns = ("objective", "family", "architecture", "seed", "sha256")
    zoo = zoo_table(folder) if (folder / "zoo.json").is_file() else pd.DataFrame()
    if name in zoo.index:
        return zoo.loc[name, list(columns)].to_dict()
    return dict.fromkeys(columns, "") | {"objective": "other", "family": "other"}


def measure_zoo(names: list[str], out: Path, folder: Path = OUT, sizes: Sizes = FULL) -> pd.DataFrame:
    """Measure the named encoders and write the table after each; rows that hold already are kept.

    Raises
    ------
    SystemExit : the file is a table of other settings.
    """
    settings = json.dumps(asdict(sizes))
    rows: dict[str, dict] = {}
    if out.is_file():
        old = pd.read_csv(out, index_col="name", keep_default_na=False)
        if (old["settings"] != settings).any():
            raise SystemExit(f"{out} was made with other sizes; remove it, or name another --out.")
        rows = old.to_dict("index")
    for name in names:
        about = described(name, folder)
        if name in rows and str(rows[name]["sha256"]) == about["sha256"]:
            continue
        print(f"measuring {name}", flush=True)
        encoder = load_vision_encoder(name, folder=folder)
        rows[name] = {**about, **measure(encoder, sizes), "settings": settings}
        partial = out.with_suffix(".partial")
        table = pd.DataFrame.from_dict(rows, orient="index").rename_axis("name")
        table.to_csv(partial, float_format="%.6g")
        partial.replace(out)
    return pd.DataFrame.from_dict(rows, orient="index").rename_axis("name")


def card(table: pd.DataFrame, folder: Path) -> str:
    """The zoo's card as Markdown: what the encoders are, how they were trained, what was measured of them."""
    zoo = zoo_table(folder)
    notes = read_about(folder / zoo["file"].iloc[0])
    shared = {key: value for key, value in json.loads(notes["recipe"]).items() if key in SETTINGS}
    trained = zoo[zoo["steps"] > 0]
    shown = ["binding", "binding, low", "binding, high", "same/different", "shapes", "jacobian rank"]
    shown += ["participation ratio", "global isotropy", "recognition"]
    described = zoo[["objective", "family", "architecture", "seed", "steps", "seconds", "parameters"]]
    lines = [
        "# The zoo of vision encoders",
        "",
        f"{len(zoo)} small vision encoders that differ in objective, architecture and seed, and in nothing else. Trained "
        "by `recipes/train_zoo.py`, which says what each objective is; measured, and this card written, by "
        "`recipes/measure_zoo.py`. Open one with `readout_utils.zoo.load_vision_encoder(name)`.",
        "",
        "- **Input**: 64 x 64 px, (x / 255 - 0.5) / 0.5. **Embedding**: the trunk's pooled output, 128 dimensions, not "
        "normalised, before any head of the training",
        "- **Architectures**: vit, a vision transformer (patch 8, width 128, 3 blocks, 4 heads, mean of its tokens); conv, "
        "a residual net (16, 32, 64, 128 channels, group normalisation, mean of its last map); both timm's",
        f"- **Data**: {int(trained['steps'].max()) * int(zoo['batch'].max()):,} sticker scenes each, drawn afresh at every "
        "step, in the training styles; the same scenes in the same order for all of a seed. No held-out noun pair, no "
        "sticker of the held-out style",
        "- **Views** (simclr, vicreg, barlow, byol, swav): crops of 40 to 100 % of the area, saturation, hue, contrast, "
        "brightness, noise; no mirroring, which would swap left and right. The others see scenes as drawn",
        f"- **Training**: AdamW, warm-up and linear decay, settings `{shared}`; "
        f"{(zoo['seconds'] * zoo['threads']).sum() / 3600:.1f} core hours in all, on a machine shared with other work",
        "- **Weights**: float16 safetensors, computed with in float32",
        f"- **Versions**: {notes['versions']}",
        "- **Use**: comparing measures. They know stickers and nothing else.",
        "- **Licence**: BSD-3-Clause (weights); the stickers they were trained on: see STICKERS.md",
        "",
        "## What each is",
        "",
        described.to_markdown(),
        "",
        "## What was measured (all of it in measures.csv)",
        "",
        table[shown].astype(float).round(3).to_markdown(),
    ]
    return "\n".join(lines) + "\n"


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("names", nargs="*", help="encoders (all of the zoo, and the pocket encoders)")
    parser.add_argument("--folder", type=Path, default=OUT, help="folder of the zoo (the package's own)")
    parser.add_argument("--out", type=Path, help="the table (measures.csv in that folder)")
    parser.add_argument("--quick", action="store_true", help="few scenes and inputs, to see that it runs")
    parser.add_argument("--inputs", type=int, help="inputs for Jacobians")
    parser.add_argument("--threads", type=int, help="torch's threads (all cores)")
    arguments = parser.parse_args()
    if arguments.threads:
        torch.set_num_threads(arguments.threads)
    sizes = QUICK if arguments.quick else FULL
    if arguments.inputs:
        sizes = Sizes(**{**asdict(sizes), "inputs": arguments.inputs})
    names = arguments.names or [*zoo_table(arguments.folder).index, *shipped_pockets()]
    out = arguments.out or arguments.folder / "measures.csv"
    table = measure_zoo(names, out, arguments.folder, sizes)
    if not arguments.out and set(zoo_table(arguments.folder).index) <= set(table.index):
        (arguments.folder / "README.md").write_text(card(table, arguments.folder))
    shown = ["binding", "same/different", "shapes", "jacobian rank", "participation ratio", "recognition"]
    print(table[shown].astype(float).round(3).to_string())


if __name__ == "__main__":
    main()
