"""Fine-tune the pocket encoder three ways: on captions, with hard negatives, with hard negatives and positives.

    python recipes/finetune_pocket.py train                # all runs; those that are finished are kept
    python recipes/finetune_pocket.py measure              # the table of all runs: data/hard_positives.csv
    python recipes/finetune_pocket.py export               # one of each kind into the package, with a card

On two cores, start training and measuring twice with ``--threads 1``: a run that another process has in hand is left
to it.

All runs start from the same encoder and see the same pictures, the same captions and as many steps. The loss is
NegCLIP's (Yuksekgonul et al. 2023): every image is matched against all captions *and* all hard negatives of the batch,
every caption against all images. The optimizers are those of the training, at about a quarter of its rates. With
positives, a share of the captions gives its place to a hard positive: one half makes originals and positives equally
many, as they are in the published training set (Kamath et al. 2024). There a hard negative is made of the original
caption, and so it is in "pocket-positives", also where the positive stands in: in a small grammar that makes a new
wording always a true one. In "pocket-balanced" the negative is made of whichever stands there, and no wording tells.
Steps and rates were chosen in short runs with hard negatives, by the loss and by how often a caption beat its own
negative in training.
"""

from __future__ import annotations

import argparse
import hashlib
import json
import time
from functools import lru_cache
from pathlib import Path

import numpy as np
import pandas as pd
import torch
import torch.nn.functional as F
from safetensors.torch import load_file, save_file
from train_pocket import make_optimizers, rate
from train_zoo import save_half, unclaimed

from readout_utils.benchmarks import load_benchmark
from readout_utils.captions import article, relate, swap, variants
from readout_utils.deflation import bootstrap_interval
from readout_utils.encoders import DualEncoder, load_encoder
from readout_utils.evaluation import evaluate, score_items
from readout_utils.hard_positives import summarise
from readout_utils.readouts import Deployed, DirectionOf, Displacement, HalfCrop
from readout_utils.scenes import (
    BIG,
    NOUNS,
    QUESTIONS,
    Scenes,
    described_scenes,
    draw_scenes,
    join_scenes,
    vocabulary,
)

ROOT = Path(__file__).parents[1]
DATA = ROOT / "readout_utils" / "data"
START = "pocket"
#: kind -> (hard negatives?, share of captions that give their place to a hard positive, negatives reworded too?)
KINDS = {
    "pocket-plain": (False, 0.0, False),
    "pocket-negatives": (True, 0.0, False),
    "pocket-positives": (True, 0.5, False),
    "pocket-balanced": (True, 0.5, True),
}
#: further shares of positives, in the table only, and with the first seed only
SHARES = {"pocket-positives-25": (True, 0.25, False), "pocket-positives-75": (True, 0.75, False)}
SEEDS = (1, 2, 3)
SETTINGS = {
    "steps": 600,
    "batch": 128,
    "muon_rate": 0.005,
    "adamw_rate": 3e-4,
    "warmup": 30,
    "weight_decay": 0.05,
    "logit_scale": 100.0,
}

#: Pictures have one big and one small sticker: two of a size are false of all of them, and no picture is needed to
#: tell such a caption from a true one.
GIVEN_AWAY = "attribute replaced by its opposite"
_NAMES = tuple(NOUNS)
_WORDS = frozenset(vocabulary())


def describe(scenes, index: int, rng: np.random.Generator) -> str:
    """A true caption of a two-sticker scene: a relation, a conjunction with sizes, or a bare conjunction.

    In one wording each ("to the left of", "big"): other wordings are what hard positives bring.
    """
    order = rng.permutation(2)
    names = [_NAMES[scenes.noun[index, k]] for k in order]
    across, down = (int(v[index, order[0]]) - int(v[index, order[1]]) for v in (scenes.x, scenes.y))
    phrases = [
        QUESTIONS[axis][int(apart > 0)]
        for axis, apart in (("left-right", across), ("above-below", down))
        if abs(apart) >= 10
    ]
    if phrases and rng.random() < 0.5:
        return relate(names[0], phrases[rng.integers(len(phrases))], names[1])
    if rng.random() < 0.8:
        big = scenes.size[index, order] >= BIG
        names = [f"{'big' if b else 'small'} {name}" for b, name in zip(big, names, strict=True)]
    return " and ".join(map(article, names))


def edits(caption: str, absent: list[str], rng: np.random.Generator) -> tuple[str, str]:
    """A hard positive and a hard negative of a caption, each of a kind drawn evenly among those that apply."""
    made = [v for v in variants(caption, absent[0]) if v.kind != GIVEN_AWAY and set(v.text.split()) <= _WORDS]

    def one(positive: bool) -> str:
        kinds = sorted({v.kind for v in made if v.positive == positive})
        kind = kinds[rng.integers(len(kinds))]
        texts = [v.text for v in made if v.kind == kind]
        return texts[rng.integers(len(texts))]

    return one(True), one(False)


def one_of_each_block(n: int, rng: np.random.Generator) -> Scenes:
    """n scenes of a big and a small sticker, apart along either axis, without the others of their blocks."""
    axes, seed = tuple(QUESTIONS), int(rng.integers(2**31))
    counts = [n - n // 2, n // 2]
    parts = [
        described_scenes(axis, 4 * count, [seed, k])[4 * np.arange(count) + rng.integers(4, size=count)]
        for k, (axis, count) in enumerate(zip(axes, counts, strict=True))
    ]
    return join_scenes(parts)


@lru_cache(maxsize=SETTINGS["steps"])  # the runs of a seed come one after the other, and share them
def batch(step: int, seed: int, size: int) -> tuple[np.ndarray, list[tuple[str, str, str, str]]]:
    """Pictures and texts of one step: a function of seed and step alone.

    The texts of a picture: a caption, a hard positive, a hard negative, and a hard negative of the positive.
    """
    rng, other = np.random.default_rng([seed, step]), np.random.default_rng([seed, step, 2])
    scenes = one_of_each_block(size, rng)
    rows = []
    for index in range(size):
        caption = describe(scenes, index, rng)
        absent = [_NAMES[k] for k in rng.permutation(len(_NAMES)) if k not in scenes.noun[index]]
        positive, negative = edits(caption, absent, rng)
        rows.append((caption, positive, negative, edits(positive, absent, other)[1]))
    return draw_scenes(scenes), rows


def contrastive_loss(image, text, negative, scale: float) -> torch.Tensor:
    """NegCLIP's loss: images against captions and hard negatives, captions against images."""
    logits = scale * image @ text.T
    target = torch.arange(len(image))
    by_image = logits if negative is None else torch.cat([logits, scale * image @ negative.T], dim=1)
    return (F.cross_entropy(by_image, target) + F.cross_entropy(logits.T, target)) / 2


def train(kind: str, seed: int, run: Path, settings: dict = SETTINGS) -> DualEncoder:
    """One fine-tune, or what an earlier call left in ``run``."""
    encoder = load_encoder(START)
    model, weights = encoder.model, run / "open_clip_model.safetensors"
    recipe = {"kind": kind, "seed": seed, "start": START, **settings}
    if weights.is_file():
        if json.loads((run / "training.json").read_text())["recipe"] != recipe:
            raise SystemExit(f"{run} holds a run of other settings; remove it, or name another folder.")
        model.load_state_dict(load_file(weights))
        return encoder
    negatives, share, reworded = {**KINDS, **SHARES}[kind]
    model.train().requires_grad_(True)
    model.logit_scale.requires_grad_(False)
    trained = [p for p in model.parameters() if p.requires_grad]
    optimizers = make_optimizers(model, settings)
    highest = [[group["lr"] for group in optimizer.param_groups] for optimizer in optimizers]
    steps, losses, began = settings["steps"], [], time.time()
    for step in range(steps):
        share_of_rate = rate(step, steps, settings)
        for optimizer, rates in zip(optimizers, highest, strict=True):
            for group, high in zip(optimizer.param_groups, rates, strict=True):
                group["lr"] = high * share_of_rate
        images, rows = batch(step, seed, settings["batch"])
        stands_in = np.random.default_rng([seed, step, 1]).random(len(rows)) < share
        texts = [row[1] if other else row[0] for row, other in zip(rows, stands_in, strict=True)]
        if negatives:
            texts += [row[3 if reworded and other else 2] for row, other in zip(rows, stands_in, strict=True)]
        with torch.autocast("cpu", torch.bfloat16):
            image = model.encode_image(encoder.to_pixels(images), normalize=True).float()
            text = model.encode_text(encoder.tokenizer(texts), normalize=True).float()
        negative = text[len(rows) :] if negatives else None
        loss = contrastive_loss(image, text[: len(rows)], negative, settings["logit_scale"])
        if not torch.isfinite(loss):
            raise SystemExit(f"The loss of {kind} is {loss.item()} at step {step}; lower the rate.")
        model.zero_grad(set_to_none=True)
        loss.backward()
        torch.nn.utils.clip_grad_norm_(trained, 1.0)
        for optimizer in optimizers:
            optimizer.step()
        losses.append(loss.item())
        if (step + 1) % 50 == 0:
            print(
                f"{kind} seed {seed} step {step + 1} loss {np.mean(losses[-50:]):.3f} {time.time() - began:.0f} s",
                flush=True,
            )
    model.eval().requires_grad_(False)
    run.mkdir(parents=True, exist_ok=True)
    record = {"recipe": recipe, "loss": float(np.mean(losses[-50:])), "seconds": round(time.time() - began)}
    (run / "training.json").write_text(json.dumps(record, indent=1) + "\n")
    partial = weights.with_suffix(".partial")
    save_file({name: value.contiguous() for name, value in model.state_dict().items()}, partial)
    partial.replace(weights)
    return encoder


def measure(encoder: DualEncoder, items: int = 1440) -> pd.DataFrame:
    """Rows of one encoder: a readout and a group each.

    Groups are patterns of hard positives, micro and macro; "wording: ..." (how often another wording scores above the
    original); and "direction: ..." (direction benchmarks).
    """
    hard = load_benchmark("scenes/hard-positives", items=items)
    relational = hard.details.negative.isin(["nouns swapped", "relation flipped"]).to_numpy()
    relations = hard.select(relational)
    scores = score_items(encoder, hard, Deployed(), encoder.encode_images(hard.images))
    frames = [summarise(scores, hard.source, hard.group).reset_index().assign(readout=Deployed().name)]
    encoder.halves = True  # they cost four more images each
    seen = encoder.encode_images(relations.images)
    for readout in (DirectionOf(Deployed()), HalfCrop(), Displacement()):
        table = summarise(score_items(encoder, relations, readout, seen), relations.source, relations.group)
        frames.append(table.reset_index().assign(readout=readout.name))
    frames.append(wording(encoder, relations, seen, hard, scores))
    for name in ("scenes/left-right", "scenes/left-right/held-out-style", "scenes/above-below"):
        readouts = [Deployed(), DirectionOf(Deployed()), Displacement()]
        encoder.halves = name == "scenes/left-right"
        if encoder.halves:
            readouts.append(HalfCrop())
        table = evaluate(encoder, load_benchmark(name, items=1200), readouts)
        frames.append(
            table.reset_index()[["readout", "n", "accuracy", "low", "high", "null", "gain", "gain_low", "gain_high"]]
            .assign(group=f"direction: {name}")
        )  # fmt: skip
    return pd.concat(frames, ignore_index=True)


def wording(encoder: DualEncoder, relations, seen, hard, scores: np.ndarray) -> pd.DataFrame:
    """How often the deployed score puts a hard positive above its original, by kind; and a *false* paraphrase."""
    prefers = (scores[:, 1] > scores[:, 0]).astype(float)
    rows = {
        f"wording: {kind}": (prefers[mask], hard.source[mask])
        for kind in np.unique(hard.details.positive)
        for mask in [(hard.details.positive == kind).to_numpy()]
    }
    mask = (relations.details.positive == "relation paraphrased").to_numpy()
    texts = [relations.captions[k][:2] for k in np.flatnonzero(mask)]
    image = relations.image[mask]
    old = Deployed().score(encoder, seen, [c for c, _ in texts], image)
    new = Deployed().score(encoder, seen, [swap(c) for _, c in texts], image)
    rows["wording: a false paraphrase"] = ((new > old).astype(float), relations.source[mask])
    table = []
    for group, (values, source) in rows.items():
        low, high = bootstrap_interval(values, source)
        table.append({"group": group, "n": len(values), "accuracy": values.mean(), "low": low, "high": high})
    return pd.DataFrame(table).assign(readout=Deployed().name)


def export(kind: str, run: Path, folder: Path, table: pd.DataFrame) -> None:
    """Write a run into the package as an open_clip folder, its weights in half precision, with a card."""
    folder.mkdir(parents=True, exist_ok=True)
    for name in ("open_clip_config.json", "words.json"):
        (folder / name).write_text((DATA / START / name).read_text())
    weights = folder / "open_clip_model.safetensors"
    save_half(load_file(run / weights.name), weights)
    digest = hashlib.sha256(weights.read_bytes()).hexdigest()
    (folder / "SHA256").write_text(f"{digest}  {weights.name}\n")
    (folder / "training.json").write_text((run / "training.json").read_text())
    (folder / "README.md").write_text(card(kind, json.loads((run / "training.json").read_text()), table))
    print(f"wrote {folder} ({weights.stat().st_size / 1e6:.1f} MB)")


def card(kind: str, training: dict, table: pd.DataFrame) -> str:
    """What a fine-tune is and does, as Markdown; ``table`` is that of all runs."""
    negatives, share, reworded = {**KINDS, **SHARES}[kind]
    recipe = training["recipe"]
    texts = "one caption a picture"
    if share:
        texts += f", of which {share:.0%} give their place to a hard positive"
    if negatives:
        texts += "; a hard negative beside each" + (
            ", of the positive where that stands in" if reworded else ""
        )
    mine = table[(table.encoder == kind) & (table.seed == recipe["seed"]) & (table.readout == "deployed")]
    shown = [f"{m}{end}" for m in ("original", "augmented", "brittleness") for end in ("", "_low", "_high")]
    rows = (100 * mine[mine.original.notna()].set_index("group")[shown]).round(1)
    return f"""# Model card: {kind}

A fine-tune of the encoder `{START}`, by `recipes/finetune_pocket.py`. Its weights come from `{START}` and are stored in half precision.

- **Captions**: {texts}
- **Data**: {recipe["steps"] * recipe["batch"]:,} pictures of a big and a small sticker, drawn afresh at every step; no held-out noun pair, no sticker of the held-out style
- **Training**: NegCLIP's loss; {recipe["steps"]:,} steps, {training["seconds"] / 60:.0f} minutes on one CPU core (shared with other work), seed {recipe["seed"]}, settings `{ {k: recipe[k] for k in SETTINGS} }`
- **Use**: teaching what fine-tunes on hard negatives and positives change. It knows the words of sticker captions and nothing else.
- **Licence**: BSD-3-Clause (weights); the stickers it was trained on: see STICKERS.md

## Hard positives with the deployed score (percent, 95 % intervals by bootstrap over blocks of scenes)

{rows.to_markdown()}
"""


def runs(root: Path) -> dict[tuple[str, int], Path]:
    """Folder of every run, by kind and seed."""
    plan = [(kind, seed) for seed in SEEDS for kind in (*KINDS, *(SHARES if seed == SEEDS[0] else ()))]
    return {(kind, seed): root / f"{kind}-{seed}" for kind, seed in plan}


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("action", choices=("train", "measure", "export"))
    parser.add_argument("--runs", type=Path, default=ROOT / "build" / "finetunes", help="folder of all runs")
    parser.add_argument("--threads", type=int, help="torch's threads (all cores)")
    arguments = parser.parse_args()
    if arguments.threads:
        torch.set_num_threads(arguments.threads)
    if arguments.action == "train":
        for (kind, seed), run in unclaimed(runs(arguments.runs)):
            train(kind, seed, run)
    elif arguments.action == "measure":
        plan = {(START, 0): arguments.runs / START, **runs(arguments.runs)}
        for (kind, seed), run in unclaimed(plan):
            if not (run / "measures.csv").is_file():
                encoder = load_encoder(START) if kind == START else train(kind, seed, run)
                measure(encoder).to_csv(run / "measures.csv", index=False)
                print("measured", kind, seed, flush=True)
        if missing := [run.name for run in plan.values() if not (run / "measures.csv").is_file()]:
            raise SystemExit(
                f"In the hands of another process, which will write the table: {', '.join(missing)}"
            )
        parts = [
            pd.read_csv(run / "measures.csv").assign(encoder=kind, seed=seed)
            for (kind, seed), run in plan.items()
        ]
        table = pd.concat(parts, ignore_index=True).set_index(["encoder", "seed", "readout", "group"])
        table.to_csv(DATA / "hard_positives.csv", float_format="%.5f")
    else:
        table = pd.read_csv(DATA / "hard_positives.csv")
        for kind in KINDS:
            export(kind, runs(arguments.runs)[kind, SEEDS[0]], DATA / kind, table)


if __name__ == "__main__":
    main()
