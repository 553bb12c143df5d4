"""Train a pocket dual encoder from scratch on captioned sticker scenes.

    python recipes/train_pocket.py pocket                 # trains, resumes if interrupted, exports
    python recipes/measure_pocket.py pocket               # measures it and writes the model card
    python recipes/train_pocket.py pocket-sigmoid         # the same for the second family

An ordinary contrastive recipe: open_clip's CLIP class and losses, fresh scenes every step, Muon on
the matrices of the blocks and AdamW on everything else, warm-up and linear decay, half of the patches left out
for most of the training. Nothing in it knows about direction: relational captions are one kind among several,
as in any corpus. The families differ in how the image is pooled (class token; attention over all tokens, as in
SigLIP) and in the loss (softmax over the batch; a sigmoid for every pair).
"""

from __future__ import annotations

import argparse
import hashlib
import json
import math
import time
from pathlib import Path

import open_clip
import torch
from open_clip.loss import SigLipLoss
from open_clip.model import CLIP
from safetensors.torch import save_file

from readout_utils.encoders import POCKET_TRUNK, WordTokenizer, register_pocket_trunk
from readout_utils.scenes import caption_scenes, draw_scenes, random_scenes, vocabulary

CONTEXT = 18
_TEXT = {"context_length": CONTEXT, "width": 128, "heads": 4, "layers": 2}
FAMILIES = {
    "pocket": {
        "embed_dim": 128,
        "vision_cfg": {"image_size": 64, "patch_size": 8, "width": 128, "layers": 4, "head_width": 32},
        "text_cfg": _TEXT,
    },
    "pocket-sigmoid": {
        "embed_dim": 128,
        "vision_cfg": {
            "image_size": 64,
            "timm_model_name": POCKET_TRUNK,
            "timm_pool": "map",
            "timm_proj": "none",
        },
        "text_cfg": _TEXT,
        "init_logit_bias": -10.0,
    },
}
MEAN = STD = (0.5, 0.5, 0.5)
SETTINGS = {
    "batch": 128,
    "logit_scale": 100.0,  # fixed where CLIP's own training ends, at its ceiling
    "muon_rate": 0.02,
    "adamw_rate": 1e-3,
    "weight_decay": 0.05,
    "warmup": 100,
    # share of the patches left out of a training image (FLIP; Li et al. 2023), and the share of the steps after
    # which none are, so that the encoder ends on whole images
    "patch_dropout": 0.5,
    "dropout_until": 0.8,
    "seed": 1,
}
SAVE_EVERY = 250
ROOT = Path(__file__).parents[1]


def model_config(family: str) -> dict:
    """open_clip's model_cfg of a family, with the tokenizer's vocabulary size filled in."""
    config = json.loads(json.dumps(FAMILIES[family]))
    config["text_cfg"]["vocab_size"] = WordTokenizer(vocabulary(), CONTEXT).vocab_size
    return config


def make_optimizers(model: torch.nn.Module, settings: dict) -> list[torch.optim.Optimizer]:
    matrices, decayed, plain = [], [], []
    for name, parameter in model.named_parameters():
        if not parameter.requires_grad:
            continue
        if parameter.ndim == 2 and ("blocks." in name or "attn_pool." in name):
            matrices.append(parameter)
        elif parameter.ndim >= 2 and "positional" not in name:
            decayed.append(parameter)
        else:
            plain.append(parameter)
    decay = settings["weight_decay"]
    return [
        torch.optim.Muon(matrices, lr=settings["muon_rate"], weight_decay=decay),
        torch.optim.AdamW(
            [{"params": decayed, "weight_decay": decay}, {"params": plain, "weight_decay": 0.0}],
            lr=settings["adamw_rate"],
            betas=(0.9, 0.98),
        ),
    ]


def rate(step: int, steps: int, settings: dict) -> float:
    """Learning rate of a step as a share of the highest."""
    rising = (step + 1) / settings["warmup"]
    return min(rising, (steps - step) / steps)


def batch(step: int, settings: dict, tokenizer: WordTokenizer) -> tuple[torch.Tensor, torch.Tensor]:
    """Images (B, 3, 64, 64) and tokens of one step: a function of seed and step alone."""
    seed = settings["seed"] * 1_000_000_000 + step
    scenes = random_scenes(settings["batch"], seed)
    pixels = torch.from_numpy(draw_scenes(scenes)).permute(0, 3, 1, 2).float() / 255
    return (pixels - MEAN[0]) / STD[0], tokenizer(caption_scenes(scenes, seed))


def dropout(step: int, steps: int, settings: dict) -> float:
    """Share of the patches that a step leaves out."""
    return settings["patch_dropout"] if step < settings["dropout_until"] * steps else 0.0


def train(family: str, steps: int, run: Path, settings: dict, compiled: bool = True) -> CLIP:
    """Train to ``steps``, from the last checkpoint in ``run`` if there is one.

    ``compiled=False`` runs the model as it is: slower, and no wait for the compiler at the start.
    """
    torch.manual_seed(settings["seed"])
    tokenizer = WordTokenizer(vocabulary(), CONTEXT)
    config = model_config(family)
    config["vision_cfg"]["patch_dropout"] = settings["patch_dropout"]
    register_pocket_trunk()
    model = CLIP(**config, init_logit_scale=math.log(settings["logit_scale"]), output_dict=True)
    model.logit_scale.requires_grad_(False)
    dropped = getattr(model.visual, "patch_dropout", None) or model.visual.trunk.patch_drop
    if compiled:  # in place: the parameters keep their names
        blocks = model.visual.trunk.blocks if hasattr(model.visual, "trunk") else [model.visual.transformer]
        for block in [*blocks, model.transformer]:
            block.compile()
    optimizers = make_optimizers(model, settings)
    highest = [[group["lr"] for group in o.param_groups] for o in optimizers]
    loss_function = SigLipLoss() if "init_logit_bias" in config else open_clip.ClipLoss()
    run.mkdir(parents=True, exist_ok=True)
    recipe = json.dumps({"family": family, "steps": steps, **settings})
    checkpoint, log, start, seconds = run / "checkpoint.pt", run / "curve.csv", 0, 0.0
    if checkpoint.exists():
        state = torch.load(checkpoint, weights_only=True)
        if state["recipe"] != recipe:
            raise SystemExit(
                f"{checkpoint} was made with other settings or steps; name another --run folder, or remove it."
            )
        model.load_state_dict(state["model"])
        for optimizer, saved in zip(optimizers, state["optimizers"], strict=True):
            optimizer.load_state_dict(saved)
        start, seconds = state["step"], state["seconds"]
        rows = log.read_text().splitlines()  # drop what was logged after the checkpoint
        kept = [row for row in rows if not row[:1].isdigit() or int(row.split(",")[0]) <= start]
        log.write_text("\n".join(kept) + "\n")
        print(f"resuming at step {start}", flush=True)
    else:
        log.write_text("step,loss,seconds\n")
    began, total = time.time() - seconds, 0.0
    for step in range(start, steps):
        share = rate(step, steps, settings)
        for optimizer, rates in zip(optimizers, highest, strict=True):
            for group, high in zip(optimizer.param_groups, rates, strict=True):
                group["lr"] = high * share
        dropped.prob = dropout(step, steps, settings)
        torch.manual_seed(settings["seed"] * 1_000_003 + step)  # which patches: the same after a resume
        images, tokens = batch(step, settings, tokenizer)
        with torch.autocast("cpu", torch.bfloat16):
            out = model(images, tokens)
        loss = loss_function(**{name: value.float() for name, value in out.items()})
        if not torch.isfinite(loss):
            raise SystemExit(f"The loss is {loss.item()} at step {step}; lower the rates.")
        for optimizer in optimizers:
            optimizer.zero_grad(set_to_none=True)
        loss.backward()
        torch.nn.utils.clip_grad_norm_(model.parameters(), 1.0)
        for optimizer in optimizers:
            optimizer.step()
        total += loss.item()
        if (step + 1) % 50 == 0:
            row = f"{step + 1},{total / 50:.4f},{time.time() - began:.0f}"
            with log.open("a") as file:
                file.write(row + "\n")
            print(row, flush=True)
            total = 0.0
        if (step + 1) % SAVE_EVERY == 0 or step + 1 == steps:
            partial = checkpoint.with_suffix(".partial")
            torch.save(
                {
                    "model": model.state_dict(),
                    "optimizers": [o.state_dict() for o in optimizers],
                    "step": step + 1,
                    "recipe": recipe,
                    "seconds": time.time() - began,
                },
                partial,
            )
            partial.replace(checkpoint)  # an interruption never leaves half a checkpoint
    return model


def export(model: CLIP, family: str, folder: Path, run: Path) -> None:
    """Write an open_clip local-dir: config, safetensors, vocabulary, training curve, hash."""
    folder.mkdir(parents=True, exist_ok=True)
    config = {
        "model_cfg": model_config(family),
        "preprocess_cfg": {"mean": MEAN, "std": STD, "interpolation": "bicubic"},
    }
    (folder / "open_clip_config.json").write_text(json.dumps(config, indent=1) + "\n")
    (folder / "words.json").write_text(json.dumps(vocabulary()) + "\n")
    weights = folder / "open_clip_model.safetensors"
    save_file({name: value.contiguous() for name, value in model.state_dict().items()}, weights)
    digest = hashlib.sha256(weights.read_bytes()).hexdigest()
    (folder / "SHA256").write_text(f"{digest}  {weights.name}\n")
    (folder / "curve.csv").write_text((run / "curve.csv").read_text())
    state = torch.load(run / "checkpoint.pt", weights_only=True)
    training = {
        "steps": state["step"],
        "seconds": round(state["seconds"]),
        "threads": torch.get_num_threads(),
        "parameters": sum(p.numel() for p in model.parameters()),
        "settings": SETTINGS,
        "versions": f"torch {torch.__version__}, open_clip {open_clip.__version__}",
    }
    (folder / "training.json").write_text(json.dumps(training, indent=1) + "\n")
    print(f"wrote {folder} ({weights.stat().st_size / 1e6:.1f} MB)")


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("family", choices=FAMILIES)
    parser.add_argument("--steps", type=int, default=6000)
    parser.add_argument("--run", type=Path, help="folder of checkpoint and log (build/<family>)")
    parser.add_argument("--out", type=Path, help="folder to export to (the package's own)")
    arguments = parser.parse_args()
    run = arguments.run or ROOT / "build" / arguments.family
    model = train(arguments.family, arguments.steps, run, SETTINGS)
    out = arguments.out or ROOT / "readout_utils" / "data" / arguments.family
    export(model, arguments.family, out, run)


if __name__ == "__main__":
    main()
