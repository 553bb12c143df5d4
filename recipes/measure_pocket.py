"""Measure a pocket encoder and write its model card: every target in one table, with intervals.

python recipes/measure_pocket.py pocket            # or pocket-sigmoid; prints the table, writes measures.csv, README.md
python recipes/measure_pocket.py pocket --check    # exits 1 where a target is missed
"""

from __future__ import annotations

import argparse
import json
import sys
from pathlib import Path

import numpy as np
import pandas as pd

from readout_utils.benchmarks import load_benchmark
from readout_utils.encoders import load_encoder
from readout_utils.evaluation import bootstrap_interval, evaluate
from readout_utils.readouts import Deployed, DirectionOf, Displacement, PatchProbe
from readout_utils.scenes import NOUNS, article, random_scenes

ROOT = Path(__file__).parents[1]
ITEMS = 4000

#: measure -> (lowest, highest) wanted
TARGETS = {
    "recognition, training styles": (0.90, 1.0),
    "deployed, left-right": (0.45, 0.55),
    "ADR excess, left-right, held-out pairs": (0.90, 1.0),
    "ADR excess, left-right, held-out style": (0.80, 1.0),
}


def recognition(encoder, benchmark, features) -> tuple[float, float, float]:
    """Share of objects among the two nouns nearest to the pooled feature, with its interval."""
    words = encoder.encode_texts([f"a photo of {article(noun)}" for noun in NOUNS])
    top = (features.pooled @ words.T).topk(2).indices.numpy()
    hit = (top[:, :, None] == benchmark.scenes.noun[:, None, :]).any(1)
    return (hit.mean(), *bootstrap_interval(hit.ravel(), np.arange(len(hit)).repeat(2)))


def measure(name: str, items: int = ITEMS) -> pd.DataFrame:
    """One row a measure: value, low, high, null, null_low, null_high, n."""
    encoder = load_encoder(name)
    probe = PatchProbe(encoder, random_scenes(3000, seed=77))
    readouts = [Deployed(), DirectionOf(Deployed()), probe]
    readouts += [Displacement(variant) for variant in ("excess", "dense", "coupling", "argmax")]
    rows = {}
    for axis in ("left-right", "above-below"):
        for twin in ("", "/held-out-pairs", "/held-out-style", "/held-out-style/held-out-pairs"):
            benchmark = load_benchmark(f"scenes/{axis}{twin}", items=items)
            features = encoder.encode_images(benchmark.images)
            where = ", ".join(
                [axis, *(part.replace("held-out-", "held-out ") for part in twin.split("/")[1:])]
            )
            table = evaluate(encoder, benchmark, readouts, features=features)
            table = table.rename(columns={"accuracy": "value"})[
                ["n", "value", "low", "high", "null", "null_low", "null_high"]
            ]
            for readout, row in table.iterrows():
                rows[f"{readout}, {where}"] = row
            if axis == "left-right" and "held-out-pairs" not in twin:
                value, low, high = recognition(encoder, benchmark, features)
                style = "held-out style" if twin else "training styles"
                rows[f"recognition, {style}"] = pd.Series(
                    {"n": 2 * len(features), "value": value, "low": low, "high": high}
                )
    return pd.DataFrame.from_dict(rows, orient="index").rename_axis("measure")


def misses(table: pd.DataFrame) -> list[str]:
    """Targets that are not reached, in words."""
    out = [
        f"{name}: {table.value[name]:.3f}, wanted {low:.2f} to {high:.2f}"
        for name, (low, high) in TARGETS.items()
        if not low <= table.value[name] <= high
    ]
    nulls = table.null.dropna()
    return out + [f"null of {name}: {null:.3f}" for name, null in nulls.items() if not 0.47 <= null <= 0.53]


def card(name: str, table: pd.DataFrame, folder: Path) -> str:
    """The model card as Markdown."""
    config = json.loads((folder / "open_clip_config.json").read_text())["model_cfg"]
    training = json.loads((folder / "training.json").read_text())
    shown = (table * 100).drop(columns="n").round(1).assign(n=table.n.astype(int))
    sigmoid = "init_logit_bias" in config
    loss = "the sigmoid loss of SigLIP" if sigmoid else "the CLIP loss"
    chosen = (
        "- **Choice of recipe**: that of `pocket`, with another pooling and another loss"
        if sigmoid
        else "- **Choice of recipe**: by short runs compared on recognition and on ADR's accuracy; nothing in it knows left "
        "from right. Tried and left: average pooling, fewer layers, smaller stickers, a free logit scale from 14, AdamW "
        "alone, a constant rate, no patches left out"
    )
    lines = [
        f"# Model card: {name}",
        "",
        f"A dual encoder of open_clip's `CLIP` class, trained from scratch on captioned sticker scenes with {loss}. Written by `recipes/measure_pocket.py`; trained by `recipes/train_pocket.py`.",
        "",
        f"- **Image tower**: `{config['vision_cfg']}`",
        f"- **Text tower**: `{config['text_cfg']}`; embedding of {config['embed_dim']} dimensions",
        f"- **Parameters**: {training['parameters']:,}",
        f"- **Data**: {training['steps'] * training['settings']['batch']:,} scenes, drawn afresh at every step: one to "
        "three stickers of four drawing styles, captions bare, conjoined or relational; no scene holds a held-out "
        "noun pair, none a sticker of the held-out style",
        f"- **Training**: {training['steps']:,} steps, {training['seconds'] / 60:.0f} minutes on {training['threads']} "
        f"CPU cores (shared with other work), settings `{training['settings']}`",
        f"- **Versions**: {training['versions']}",
        chosen,
        "- **Use**: teaching and testing readouts. It knows the words of sticker captions and nothing else.",
        "- **Licence**: BSD-3-Clause (weights); the stickers it was trained on: see STICKERS.md",
        "",
        "## What it does (percent, 95 % intervals by bootstrap over images)",
        "",
        shown[["value", "low", "high", "null", "null_low", "null_high", "n"]].to_markdown(),
        "",
        "## Targets",
        "",
    ]
    missed = misses(table)
    lines += [f"- missed: {miss}" for miss in missed] or [
        "All reached: " + "; ".join(TARGETS) + "; every null."
    ]
    return "\n".join(lines) + "\n"


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("name", help="a pocket encoder, or local-dir:<folder>")
    parser.add_argument("--items", type=int, default=ITEMS)
    parser.add_argument("--check", action="store_true", help="exit 1 where a target is missed; write nothing")
    arguments = parser.parse_args()
    table = measure(arguments.name, arguments.items)
    with pd.option_context(
        "display.width",
        200,
        "display.max_rows",
        None,
        "display.max_columns",
        None,
        "display.max_colwidth",
        None,
    ):
        print((table * 100).assign(n=table.n.astype(int)).round(1))
    missed = misses(table)
    print("\n".join(["missed targets:", *missed]) if missed else "all targets reached")
    if arguments.check:
        sys.exit(bool(missed))
    if arguments.name.startswith("local-dir:"):
        return
    folder = ROOT / "readout_utils" / "data" / arguments.name
    table.to_csv(folder / "measures.csv", float_format="%.6f")
    (folder / "README.md").write_text(card(arguments.name, table, folder))


if __name__ == "__main__":
    main()
