"""Go on training an encoder with and without a term on the local input-output map, at equal steps and scenes.

    python recipes/train_local.py train              # all runs; resumes what was interrupted
    python recipes/train_local.py measure            # binding, geometry, Jacobians, recognition: data/local_term.csv
    python recipes/train_local.py export             # some terms' encoders of the first seed, into the package
    python recipes/train_local.py train --only swap  # one term

On two cores, start the training twice with ``--threads 1``. Objective, data and optimizer are the zoo's (train_zoo.py).
All runs of a seed go on from one start, trained by the objective alone, and see the same scenes. Terms, with d the pixels' way from a scene x to another x':

none        the baseline
longer      the baseline for as many more steps as the main term takes more time
swap        swap sensitivity over nuisance sensitivity: how far the embedding goes for a small step towards the scene with
            the places of two stickers exchanged, against a step towards other noise, background or drawing style
swap-only   ablation: swap sensitivity over what a step towards another noun does, as it is
quiet-only  ablation: what a step towards another noun does, as it is, over nuisance sensitivity
noun        control: as swap, with another noun in one of the places: sensitive to things, not to their exchange
far         control: as swap, all the way to the changed scenes instead of a small step
rank        the effective rank of the answers to directions that the embedding answers to
"""

from __future__ import annotations

import argparse
import json
from collections.abc import Callable, Sequence
from dataclasses import asdict
from pathlib import Path

import numpy as np
import pandas as pd
import torch
import train_zoo
from measure_zoo import Sizes, measure
from torch import Tensor, nn
from train_zoo import Objective, batch, claimed, fit, make_objective, save_half, unclaimed

from readout_utils.jacobian import change_scenes, effective_rank
from readout_utils.scenes import TRAINING_STYLES, Scenes, draw_scenes, random_scenes
from readout_utils.zoo import VisionEncoder

ROOT = Path(__file__).parents[1]
DATA = ROOT / "readout_utils" / "data"
OUT = DATA / "local_term"
TERMS = ("none", "longer", "swap", "swap-only", "quiet-only", "far", "rank", "noun")
SHIPPED = ("none", "swap", "far", "rank")
SEEDS = (1, 2, 3)
SETTINGS = {
    **train_zoo.SETTINGS,
    "objective": "supervised",
    "architecture": "conv",
    "start": 400,
    "steps": 200,
    "longer": 1.6,
    "weight": 0.5,
    "target": 100.0,  # of the ratio of squared sensitivities; a term is silent beyond it
    "step": 0.25,  # share of the way towards the changed scene
    "scenes": 32,  # of a batch, with two stickers or more
    "directions": 16,
    "rank_scenes": 8,
    "rank_step": 3.0,  # length of a random direction, in units of a pixel's value
}
FULL = Sizes(scenes=1000, inputs=24, controls=8, changed=100, probe=1600)


# --- terms ----------------------------------------------------------------------------------------


def to_pixels(scenes: Scenes) -> Tensor:
    """(B, 3, 64, 64) in [-1, 1], as the objectives take them."""
    return train_zoo.to_pixels(draw_scenes(scenes))


def crowded(scenes: Scenes, most: int) -> Scenes:
    """The first ``most`` scenes with two stickers or more."""
    return scenes[np.flatnonzero((scenes.noun >= 0).sum(1) >= 2)[:most]]


def disturb(scenes: Scenes, seed: int) -> Scenes:
    """Every scene with other noise, another background or another training style, in turn; all else the same."""
    rng = np.random.default_rng(seed)
    known = len(TRAINING_STYLES)  # the first of STYLES: the held-out style is nowhere in training
    style = scenes.style.copy()
    style[:, 0] = (style[:, 0] + rng.integers(1, known, len(scenes))) % known
    changed = [
        change_scenes(scenes, "noise", seed),
        change_scenes(scenes, "background", seed),
        scenes.replace(style=style),
    ]
    turn = np.arange(len(scenes)) % len(changed)
    fields = {}
    for name in vars(scenes):
        values = np.stack([getattr(one, name) for one in changed])
        fields[name] = values[turn, np.arange(len(scenes))]
    return Scenes(**fields)


def squared_rate(moved: Tensor, embedding: Tensor, way: Tensor) -> Tensor:
    """``||f(x + d) - f(x)||^2 / ||d||^2`` of every row, for embeddings (B, D) and ways d (B, ...)."""
    return ((moved - embedding) ** 2).sum(1) / (way.flatten(1) ** 2).sum(1)


def log_rates(embed: Callable[[Tensor], Tensor], x: Tensor, *ways: Tensor) -> list[Tensor]:
    """Log of the squared rate along each way, (B,) for every one of them."""
    here, *moved = embed(torch.cat([x, *(x + way for way in ways)])).chunk(len(ways) + 1)
    return [torch.log(squared_rate(m, here, way) + 1e-12) for m, way in zip(moved, ways, strict=True)]


def ratio_term(model: Objective, scenes: Scenes, seed: int, term: str, settings: dict) -> Tensor:
    """How far the log of a ratio of squared sensitivities stays behind its target: mean over scenes, at least 0."""
    x, step = to_pixels(scenes), 1.0 if term == "far" else settings["step"]

    def way(changed: Scenes) -> Tensor:
        return step * (to_pixels(changed) - x)

    swap, quiet = way(change_scenes(scenes, "swap", seed)), way(disturb(scenes, seed))
    noun = way(change_scenes(scenes, "noun", seed))
    # what is to be large over what is to be small; a yardstick is taken as it is
    large = {"quiet-only": noun, "noun": noun}.get(term, swap)
    small = noun if term == "swap-only" else quiet
    above, below = log_rates(model.embed, x, large, small)
    if term == "swap-only":
        below = below.detach()
    elif term == "quiet-only":
        above = above.detach()
    return torch.relu(np.log(settings["target"]) - above + below).mean()


def rank_term(model: Objective, scenes: Scenes, seed: int, settings: dict) -> Tensor:
    """Log of how many times more directions there are than the answers to them have effective rank: at least 0.

    The directions span J^T U for random U, where the embedding does answer: to directions drawn at random in the space
    of pixels it hardly does, and its answers look alike (see readout_utils.jacobian.singular_values).
    """
    x, m = to_pixels(scenes[: settings["rank_scenes"]]), settings["directions"]
    seen = x.clone().requires_grad_()
    embedding = model.embed(seen)
    pulls = torch.randn(m, 1, embedding.shape[1]).expand(-1, len(x), -1).to(embedding)
    (ways,) = torch.autograd.grad(embedding, seen, pulls, retain_graph=True, is_grads_batched=True)
    ways = torch.linalg.qr(ways.flatten(2).permute(1, 2, 0).double()).Q.mT.view(len(x), m, *x.shape[1:])
    moved = model.embed((x[:, None] + settings["rank_step"] * ways.to(x)).flatten(0, 1))
    answers = moved.view(len(x), m, -1) - embedding[:, None]
    return -torch.log(effective_rank(torch.linalg.svdvals(answers)) / m).mean().float()


def log_ratio(encoder: VisionEncoder, scenes: Scenes, seed: int, step: float) -> float:
    """What the swap term asks about, of a frozen encoder: mean log ratio of squared sensitivities for such a step."""
    x = to_pixels(scenes)
    ways = (step * (to_pixels(s) - x) for s in (change_scenes(scenes, "swap", seed), disturb(scenes, seed)))
    swap, quiet = log_rates(encoder.function, x, *ways)
    return float((swap - quiet).mean())


def make_loss(model: Objective, term: str, seed: int, steps: int, settings: dict) -> Callable[[int], Tensor]:
    """Objective and term of a step.

    Raises
    ------
    SystemExit : an unknown term.
    """
    if term not in TERMS:
        raise SystemExit(f"Unknown term {term!r}; there are {', '.join(TERMS)}.")

    def loss(step: int) -> Tensor:
        step += settings["start"]  # on from where the start's training ended
        part = batch(step, seed, settings)
        total = model(part, step / (settings["start"] + steps))
        if term in ("none", "longer"):
            return total
        scenes = crowded(part.scenes, settings["scenes"])
        extra = (
            rank_term(model, scenes, step, settings)
            if term == "rank"
            else ratio_term(model, scenes, step, term, settings)
        )
        return total + settings["weight"] * extra

    return loss


# --- runs -----------------------------------------------------------------------------------------


def train_start(seed: int, run: Path, settings: dict = SETTINGS) -> Objective:
    """The objective and its trunk after ``start`` steps without any term, from the last checkpoint if there is one."""
    model = make_objective(settings["objective"], settings["architecture"], seed, settings).train()
    steps = settings["start"]
    loss = make_loss(model, "none", seed, steps, {**settings, "start": 0})
    shared = ("objective", "architecture", "start", *train_zoo.SETTINGS)
    recipe = json.dumps({"seed": seed, **{key: settings[key] for key in shared}})
    with claimed(run, wait=True):
        fit(f"start seed {seed}", model, loss, seed, steps, run, recipe, settings)
    return model


def train(term: str, seed: int, run: Path, settings: dict = SETTINGS) -> nn.Module:
    """The trunk of one run, trained from its last checkpoint if there is one, or from the start of its seed, which is
    kept beside it.

    Raises
    ------
    SystemExit : as ``train_zoo.fit``; an unknown term.
    """
    if (run / "checkpoint.pt").exists():
        model = make_objective(settings["objective"], settings["architecture"], seed, settings).train()
    else:
        model = train_start(seed, run.parent / f"start-{seed}", settings)
    steps = round(settings["steps"] * (settings["longer"] if term == "longer" else 1))
    loss = make_loss(model, term, seed, steps, settings)
    recipe = json.dumps({"term": term, "seed": seed, **settings})
    fit(f"{term} seed {seed}", model, loss, seed, steps, run, recipe, settings)
    return model.trunk


def runs(root: Path) -> dict[tuple[str, int], Path]:
    """Folder of every run, by term and seed."""
    return {(term, seed): root / f"{term}-{seed}" for seed in SEEDS for term in TERMS}


def measure_runs(root: Path, out: Path, sizes: Sizes = FULL, only: Sequence[str] = TERMS) -> None:
    """Measure the runs of some terms and write the table after each; rows that were made by these settings are kept."""
    settings = json.dumps({**SETTINGS, **asdict(sizes)})
    rows = pd.read_csv(out, keep_default_na=False).to_dict("records") if out.is_file() else []
    rows = [row for row in rows if row["settings"] == settings]
    done = {(row["term"], row["seed"]) for row in rows}
    for (term, seed), run in runs(root).items():
        if (term, seed) in done or term not in only:
            continue
        encoder = VisionEncoder(train(term, seed, run), name=f"{term}-{seed}")
        seconds = int((run / "curve.csv").read_text().splitlines()[-1].split(",")[2])
        scenes = random_scenes(3 * sizes.changed, sizes.seed + 7, stickers=(2,))
        ratios = {
            f"log ratio, {name}": log_ratio(encoder, scenes, sizes.seed, step)
            for name, step in (("small step", SETTINGS["step"]), ("whole change", 1.0))
        }
        rows.append(
            {
                "term": term,
                "seed": seed,
                "seconds": seconds,
                **measure(encoder, sizes),
                **ratios,
                "settings": settings,
            }
        )
        rows.sort(key=lambda row: (SEEDS.index(row["seed"]), TERMS.index(row["term"])))
        pd.DataFrame(rows).to_csv(out, index=False, float_format="%.6g")
        print("measured", term, seed, flush=True)


def export(root: Path, out: Path) -> None:
    """Write the shipped runs' trunks, float16."""
    out.mkdir(parents=True, exist_ok=True)
    for term in SHIPPED:
        trunk = train(term, SEEDS[0], runs(root)[term, SEEDS[0]])
        save_half(trunk.state_dict(), out / f"{term}.safetensors")
        print(f"wrote {out / term}.safetensors")


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("action", choices=("train", "measure", "export"))
    parser.add_argument("--only", nargs="+", choices=TERMS, default=TERMS, help="some of the terms")
    parser.add_argument("--runs", type=Path, default=ROOT / "build" / "local", help="folder of all runs")
    parser.add_argument("--out", type=Path, default=DATA / "local_term.csv", help="the table of measures")
    parser.add_argument("--threads", type=int, help="torch's threads (all cores)")
    arguments = parser.parse_args()
    if arguments.threads:
        torch.set_num_threads(arguments.threads)
    if arguments.action == "train":
        wanted = {key: run for key, run in runs(arguments.runs).items() if key[0] in arguments.only}
        for (term, seed), run in unclaimed(wanted):
            train(term, seed, run)
    elif arguments.action == "measure":
        measure_runs(arguments.runs, arguments.out, only=arguments.only)
    else:
        export(arguments.runs, OUT)


if __name__ == "__main__":
    main()
