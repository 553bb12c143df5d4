"""Train the zoo: small vision encoders that differ in objective, architecture and seed, and in nothing else.

    python recipes/train_zoo.py                     # trains what is missing, resumes what was interrupted, exports
    python recipes/train_zoo.py --list              # the plan, and how far it is
    python recipes/train_zoo.py --only clip-vit     # some of them
    python recipes/train_zoo.py --time 5            # minutes each would take here, from 5 steps of each kind
    python recipes/measure_zoo.py                   # measures them

On two cores, start it twice with ``--threads 1``: an encoder that another process has in hand is left to it.
Needs lightly beside the book's environment (requirements/recipes.txt), for the losses and heads of the
self-supervised objectives; exported encoders need nothing of it.

Every encoder sees the same scenes in the same order (of its seed), as many of them, with the same optimizer, and
starts from the same weights as the others of its architecture and seed: "untrained" is that start. Views are
cropped, recoloured and made noisy, never mirrored, because a mirror image swaps left and right. Objectives
of a single image see scenes as drawn: each is new, and there is nothing to augment.

Objectives, with the loss's source (z: a head's output, dropped after training; h: the embedding):

supervised    cross-entropy of a softmax over nouns, shared among those present (Mahajan et al. 2018), linear on h
simclr        lightly's NTXentLoss of z of two views (Chen et al. 2020)
vicreg        lightly's VICRegLoss (Bardes et al. 2022)
barlow        lightly's BarlowTwinsLoss (Zbontar et al. 2021)
byol          lightly's NegativeCosineSimilarity of predictions to a slow teacher's z (Grill et al. 2020)
swav          lightly's SwaVLoss: swapped prototype assignments (Caron et al. 2020)
mae           masked prediction. vit: lightly's masked transformer and decoder, which never show the encoder what
              is masked (He et al. 2022). conv: the masked squares are blanked in the input and predicted from
              the last map, absolute error (SimMIM, Xie et al. 2022), since a convolution cannot leave squares out
autoencoder   squared error of the scene decoded from h alone: the one objective that h must answer for every pixel
clip          open_clip's ClipLoss with captions (Radford et al. 2021), linear projection of h
sigmoid       open_clip's SigLipLoss, the same towers (Zhai et al. 2023)
untrained     nothing
"""

from __future__ import annotations

import argparse
import copy
import fcntl
import hashlib
import importlib.util
import json
import math
import os
import time
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import TypeVar

import numpy as np
import open_clip
import timm
import torch
import torch.nn.functional as F
from open_clip.loss import SigLipLoss
from open_clip.transformer import TextTransformer
from safetensors import safe_open
from safetensors.torch import save_file
from torch import Tensor, nn

from readout_utils.encoders import WordTokenizer
from readout_utils.scenes import CANVAS, NOUNS, Scenes, caption_scenes, draw_scenes, random_scenes, vocabulary
from readout_utils.zoo import ARCHITECTURES, WIDTH, build_trunk

#: objective -> the family it belongs to
OBJECTIVES = {
    "supervised": "supervised",
    "simclr": "contrastive",
    "vicreg": "decorrelation",
    "barlow": "decorrelation",
    "byol": "self-distillation",
    "swav": "clustering",
    "mae": "masked prediction",
    "autoencoder": "reconstruction",
    "clip": "vision-language",
    "sigmoid": "vision-language",
    "untrained": "untrained",
}
#: Objectives trained with a second seed too, in both architectures: what a seed alone changes.
REPLICATED = ("supervised",)
STEPS = 600
SETTINGS = {
    "batch": 128,
    "rate": 1e-3,
    "weight_decay": 0.05,
    "warmup": 50,
    "hidden": 512,  # width of projectors and, where they have no width of their own, of their outputs
    "temperature": 0.2,  # SimCLR's
    "prototypes": 128,
    "teacher": 0.99,  # share of the slow teacher that a step keeps; rises to 1
    "masked": 0.6,
    "crop": 0.4,  # smallest share of the area that a view shows
    # on this architecture bfloat16 pays on the CPUs of today; the transformer is faster without
    "bfloat16": ["conv"],
}
PATCH = 8
MEAN = STD = 0.5
CONTEXT = 18
SAVE_EVERY = 100
ROOT = Path(__file__).parents[1]
OUT = ROOT / "readout_utils" / "data" / "zoo"
RUNS = ROOT / "build" / "zoo"
K = TypeVar("K")


def plan() -> dict[str, tuple[str, str, int]]:
    """Every encoder's name and what it is: objective, architecture, seed."""
    kinds = [(objective, architecture, 1) for objective in OBJECTIVES for architecture in ARCHITECTURES]
    kinds += [(objective, architecture, 2) for objective in REPLICATED for architecture in ARCHITECTURES]
    return {f"{o}-{a}" + (f"-{seed}" if seed > 1 else ""): (o, a, seed) for o, a, seed in kinds}


# --- data -----------------------------------------------------------------------------------------


@dataclass
class Batch:
    """The scenes of one step, their pixels (B, 3, 64, 64) in [-1, 1], and the seed of what is drawn beside."""

    scenes: Scenes
    pixels: Tensor
    seed: int


def batch(step: int, seed: int, settings: dict) -> Batch:
    """Scenes of one step: a function of seed and step alone."""
    seed = seed * 1_000_000_000 + step
    scenes = random_scenes(settings["batch"], seed)
    return Batch(scenes, to_pixels(draw_scenes(scenes)), seed)


def to_pixels(images: np.ndarray) -> Tensor:
    """Pictures (B, 64, 64, 3) uint8 as the objectives take them: (B, 3, 64, 64) in [-1, 1]."""
    return (torch.from_numpy(images).permute(0, 3, 1, 2).float() / 255 - MEAN) / STD


def augment(pixels: Tensor, smallest: float = SETTINGS["crop"]) -> Tensor:
    """A random view of every image, (B, 3, H, W) in [-1, 1], from torch's global random state.

    A crop of ``smallest`` to all of the area, sides at up to 1.2 : 1, brought back to full size; saturation
    times 0.4 to 1.6 (none at all for one view in five), hue turned by up to 36 degrees, contrast times 0.6 to
    1.4, brightness moved by up to 0.3; Gaussian noise of deviation up to 0.1. No mirroring.
    """
    n = len(pixels)

    def between(low: float, high: float, *shape: int) -> Tensor:
        return low + (high - low) * torch.rand(n, *shape)

    side, ratio = between(smallest, 1).sqrt(), torch.exp(between(-0.5, 0.5) * math.log(1.2))
    scale = torch.stack([side * ratio, side / ratio], dim=1).clamp(max=1)  # (n, 2) of width and height
    shift = between(-1, 1, 2) * (1 - scale)
    theta = torch.cat([torch.diag_embed(scale), shift[..., None]], dim=2)
    views = F.grid_sample(
        pixels, F.affine_grid(theta, list(pixels.shape), align_corners=False), padding_mode="border",
        align_corners=False,
    )  # fmt: skip
    colours = _colour_matrix(between(-0.2 * math.pi, 0.2 * math.pi), between(0.4, 1.6), between(0.6, 1.4))
    views = torch.bmm(colours, views.flatten(2)).view_as(views) + between(-0.3, 0.3, 1, 1, 1)
    return (views + between(0, 0.1, 1, 1, 1) * torch.randn_like(views)).clamp(-1, 1)


def _colour_matrix(hue: Tensor, saturation: Tensor, contrast: Tensor) -> Tensor:
    """Linear maps of colour, (n, 3, 3): a turn about the grey axis, then saturation, then contrast."""
    saturation = torch.where(torch.rand(len(hue)) < 0.2, 0.0, saturation)
    grey = torch.full((3, 3), 1 / 3)
    cross = torch.tensor([[0.0, -1, 1], [1, 0, -1], [-1, 1, 0]]) / math.sqrt(3)
    cos, sin = (f(hue)[:, None, None] for f in (torch.cos, torch.sin))
    chroma = cos * (torch.eye(3) - grey) + sin * cross  # Rodrigues' formula, off the axis
    return contrast[:, None, None] * (grey + saturation[:, None, None] * chroma)


def noun_targets(scenes: Scenes) -> Tensor:
    """Which nouns are in each scene: (B, W) of zeros and ones."""
    return torch.from_numpy((scenes.noun[:, :, None] == np.arange(len(NOUNS))).any(1)).float()


# --- objectives -----------------------------------------------------------------------------------


class Objective(nn.Module):
    """A trunk and what its training needs beside it: a batch and the share of training done to a loss."""

    def __init__(self, trunk: nn.Module, architecture: str, settings: dict):
        super().__init__()
        self.trunk, self.settings = trunk, settings
        self.bfloat16 = architecture in settings["bfloat16"]
        if self.bfloat16:  # convolutions are faster so
            self.trunk.to(memory_format=torch.channels_last)

    def embed(self, pixels: Tensor, trunk: nn.Module | None = None) -> Tensor:
        """Embeddings (B, D) float32 of pixels (B, 3, H, W)."""
        return self._run(trunk or self.trunk, pixels).float()

    def _run(self, function, pixels: Tensor) -> Tensor:
        if self.bfloat16:
            pixels = pixels.contiguous(memory_format=torch.channels_last)
        with torch.autocast("cpu", torch.bfloat16, enabled=self.bfloat16):
            return function(pixels)

    def two_views(self, pixels: Tensor) -> Tensor:
        """Two views of every image, (2 B, 3, H, W): all first ones, then all second ones."""
        return torch.cat([augment(pixels, self.settings["crop"]) for _ in range(2)])

    def forward(self, batch: Batch, done: float) -> Tensor:
        raise NotImplementedError


class Untrained(Objective):
    pass


class Supervised(Objective):
    def __init__(self, *arguments):
        super().__init__(*arguments)
        self.head = nn.Linear(WIDTH, len(NOUNS))

    def forward(self, batch: Batch, done: float) -> Tensor:
        targets = noun_targets(batch.scenes)
        # a softmax over nouns: an independent sigmoid each stays at the nouns' frequency for hundreds of steps
        return F.cross_entropy(self.head(self.embed(batch.pixels)), targets / targets.sum(1, keepdim=True))


class Siamese(Objective):
    """A loss of the projections of two views."""

    def __init__(self, *arguments):
        super().__init__(*arguments)
        self.projector, self.loss = self.parts(self.settings["hidden"])

    def parts(self, hidden: int) -> tuple[nn.Module, nn.Module]:
        raise NotImplementedError

    def forward(self, batch: Batch, done: float) -> Tensor:
        return self.loss(*self.projector(self.embed(self.two_views(batch.pixels))).chunk(2))


class SimCLR(Siamese):
    def parts(self, hidden: int):
        from lightly.loss import NTXentLoss
        from lightly.models.modules.heads import SimCLRProjectionHead

        return SimCLRProjectionHead(WIDTH, hidden, WIDTH), NTXentLoss(self.settings["temperature"])


class VICReg(Siamese):
    def parts(self, hidden: int):
        from lightly.loss import VICRegLoss
        from lightly.models.modules.heads import VICRegProjectionHead

        return VICRegProjectionHead(WIDTH, hidden, hidden), VICRegLoss()


class BarlowTwins(Siamese):
    def parts(self, hidden: int):
        from lightly.loss import BarlowTwinsLoss
        from lightly.models.modules.heads import BarlowTwinsProjectionHead

        return BarlowTwinsProjectionHead(WIDTH, hidden, hidden), BarlowTwinsLoss()


class BYOL(Objective):
    def __init__(self, *arguments):
        super().__init__(*arguments)
        from lightly.loss import NegativeCosineSimilarity
        from lightly.models.modules.heads import BYOLPredictionHead, BYOLProjectionHead

        hidden = self.settings["hidden"]
        self.projector = BYOLProjectionHead(WIDTH, hidden, WIDTH)
        self.predictor = BYOLPredictionHead(WIDTH, hidden, WIDTH)
        self.teacher = copy.deepcopy(nn.ModuleList([self.trunk, self.projector])).requires_grad_(False)
        self.loss = NegativeCosineSimilarity()

    def forward(self, batch: Batch, done: float) -> Tensor:
        from lightly.models.utils import update_momentum

        kept = 1 - (1 - self.settings["teacher"]) * (1 + math.cos(math.pi * done)) / 2
        for student, teacher in zip((self.trunk, self.projector), self.teacher, strict=True):
            update_momentum(student, teacher, kept)
        views = self.two_views(batch.pixels)
        first, second = self.predictor(self.projector(self.embed(views))).chunk(2)
        with torch.no_grad():
            trunk, projector = self.teacher
            slow_first, slow_second = projector(self.embed(views, trunk)).chunk(2)
        return (self.loss(first, slow_second) + self.loss(second, slow_first)) / 2


class SwAV(Objective):
    def __init__(self, *arguments):
        super().__init__(*arguments)
        from lightly.loss import SwaVLoss
        from lightly.models.modules.heads import SwaVProjectionHead, SwaVPrototypes

        self.projector = SwaVProjectionHead(WIDTH, self.settings["hidden"], WIDTH)
        self.prototypes = SwaVPrototypes(WIDTH, self.settings["prototypes"])
        self.loss = SwaVLoss()

    def forward(self, batch: Batch, done: float) -> Tensor:
        self.prototypes.normalize()
        z = F.normalize(self.projector(self.embed(self.two_views(batch.pixels))), dim=1)
        return self.loss(list(self.prototypes(z).chunk(2)), []).squeeze()


class MaskedTokens(Objective):
    """MAE: the encoder sees some patches of a scene, a small decoder predicts the others."""

    def __init__(self, *arguments):
        super().__init__(*arguments)
        from lightly.models.modules import MaskedVisionTransformerTIMM
        from lightly.models.modules.masked_vision_transformer_decoder_timm import (
            MaskedVisionTransformerDecoderTIMM,
        )

        self.masked = MaskedVisionTransformerTIMM(
            self.trunk, weight_initialization="skip", pos_embed_initialization="skip"
        )
        self.patches = (CANVAS // PATCH) ** 2
        width = WIDTH // 2
        self.bridge = nn.Linear(WIDTH, width)
        self.decoder = MaskedVisionTransformerDecoderTIMM(
            num_patches=self.patches, embed_dim=width, depth=1, num_heads=2, num_prefix_tokens=0
        )
        self.head = nn.Linear(width, 3 * PATCH**2)

    def forward(self, batch: Batch, done: float) -> Tensor:
        from lightly.models import utils

        size = (len(batch.pixels), self.patches)
        keep, masked = utils.random_token_mask(size, self.settings["masked"], mask_class_token=True)
        seen = self.bridge(self._run(lambda x: self.masked.encode(x, idx_keep=keep), batch.pixels).float())
        tokens = self.decoder.mask_token.repeat(*size, 1)
        tokens = utils.set_at_index(tokens, keep, seen)
        predicted = self.head(utils.get_at_index(self.decoder(tokens), masked))
        wanted = utils.get_at_index(utils.patchify(batch.pixels, PATCH), masked)
        # pixels as they are: each patch on a scale of its own would make the background's noise count as much as
        # the stickers
        return F.mse_loss(predicted, wanted)


class MaskedSquares(Objective):
    """SimMIM: masked squares are blank in the input, and predicted from the last map."""

    def __init__(self, *arguments):
        super().__init__(*arguments)
        self.stride = 16  # pixels of the input that one place of the last map answers for
        self.head = nn.Sequential(nn.Conv2d(WIDTH, 3 * self.stride**2, 1), nn.PixelShuffle(self.stride))

    def forward(self, batch: Batch, done: float) -> Tensor:
        grid = CANVAS // PATCH
        order = torch.rand(len(batch.pixels), grid**2).argsort(1).argsort(1)
        masked = (order < self.settings["masked"] * grid**2).float().view(-1, 1, grid, grid)
        masked = masked.repeat_interleave(PATCH, 2).repeat_interleave(PATCH, 3)
        features = self._run(self.trunk.forward_features, batch.pixels * (1 - masked)).float()
        error = (self.head(features) - batch.pixels).abs() * masked
        return error.sum() / (3 * masked.sum())


class Autoencoder(Objective):
    def __init__(self, *arguments):
        super().__init__(*arguments)

        def doubled(channels: int, to: int) -> list[nn.Module]:
            return [nn.Conv2d(channels, 4 * to, 3, padding=1), nn.PixelShuffle(2)]

        self.decoder = nn.Sequential(
            nn.Linear(WIDTH, 64 * 8 * 8), nn.GELU(), nn.Unflatten(1, (64, 8, 8)),
            *doubled(64, 32), nn.GELU(), *doubled(32, 16), nn.GELU(), *doubled(16, 3),
        )  # fmt: skip

    def forward(self, batch: Batch, done: float) -> Tensor:
        return F.mse_loss(self.decoder(self.embed(batch.pixels)), batch.pixels)


class Captioned(Objective):
    """A dual encoder: linear projections of picture and caption meet in one space."""

    scale, bias = 1 / 0.07, None

    def __init__(self, *arguments):
        super().__init__(*arguments)
        self.tokenizer = WordTokenizer(vocabulary(), CONTEXT)
        self.text = TextTransformer(
            context_length=CONTEXT, vocab_size=self.tokenizer.vocab_size, width=WIDTH, heads=4, layers=2,
            output_dim=WIDTH,
        )  # fmt: skip
        self.projection = nn.Linear(WIDTH, WIDTH, bias=False)
        self.logit_scale = nn.Parameter(torch.tensor(math.log(self.scale)))
        self.logit_bias = None if self.bias is None else nn.Parameter(torch.tensor(self.bias))
        self.loss = self.make_loss()

    def make_loss(self) -> nn.Module:
        return open_clip.ClipLoss()

    def forward(self, batch: Batch, done: float) -> Tensor:
        tokens = self.tokenizer(caption_scenes(batch.scenes, batch.seed))
        image, text = self.projection(self.embed(batch.pixels)), self.text(tokens)
        scale = self.logit_scale.clamp(max=math.log(100)).exp()
        biases = () if self.logit_bias is None else (self.logit_bias,)
        return self.loss(F.normalize(image, dim=1), F.normalize(text, dim=1), scale, *biases)


class SigmoidCaptioned(Captioned):
    scale, bias = 10.0, -10.0

    def make_loss(self) -> nn.Module:
        return SigLipLoss()


_CLASSES = {
    "supervised": Supervised, "simclr": SimCLR, "vicreg": VICReg, "barlow": BarlowTwins, "byol": BYOL,
    "swav": SwAV, "autoencoder": Autoencoder, "clip": Captioned, "sigmoid": SigmoidCaptioned,
    "untrained": Untrained,
}  # fmt: skip


def needs_lightly(objective: str, architecture: str) -> bool:
    """Whether an objective's loss or heads are lightly's."""
    return objective in ("simclr", "vicreg", "barlow", "byol", "swav") or (objective, architecture) == (
        "mae",
        "vit",
    )


def make_objective(objective: str, architecture: str, seed: int, settings: dict = SETTINGS) -> Objective:
    """An objective around a fresh trunk; trunks of one architecture and seed start alike.

    Raises
    ------
    SystemExit : an unknown objective, or lightly missing where it is needed.
    """
    if objective not in OBJECTIVES:
        raise SystemExit(f"Unknown objective {objective!r}; there are {', '.join(OBJECTIVES)}.")
    if needs_lightly(objective, architecture) and importlib.util.find_spec("lightly") is None:
        raise SystemExit(f"{objective!r} needs lightly: pip install -r requirements/recipes.txt")
    torch.manual_seed(seed)
    trunk = build_trunk(architecture)  # first: the same draws for every objective
    kind = {"vit": MaskedTokens, "conv": MaskedSquares}[architecture] if objective == "mae" else None
    return (kind or _CLASSES[objective])(trunk, architecture, settings)


# --- training -------------------------------------------------------------------------------------


def make_optimizer(model: Objective, settings: dict) -> torch.optim.Optimizer:
    parameters = [p for p in model.parameters() if p.requires_grad]
    decayed = [p for p in parameters if p.ndim >= 2]
    plain = [p for p in parameters if p.ndim < 2]
    groups = [{"params": decayed, "weight_decay": settings["weight_decay"]}, {"params": plain}]
    return torch.optim.AdamW(groups, lr=settings["rate"], betas=(0.9, 0.98), weight_decay=0.0)


def rate(step: int, steps: int, settings: dict) -> float:
    """Learning rate of a step."""
    return settings["rate"] * min((step + 1) / settings["warmup"], (steps - step) / steps)


def recipe_of(name: str, steps: int, settings: dict) -> str:
    """What an encoder is trained by, as one text: kept with its weights, and compared before going on."""
    objective, architecture, seed = plan()[name]
    steps = 0 if objective == "untrained" else steps
    return json.dumps(
        {"objective": objective, "architecture": architecture, "seed": seed, "steps": steps, **settings}
    )


def train(name: str, steps: int, run: Path, settings: dict = SETTINGS) -> tuple[nn.Module, float]:
    """Train one encoder to ``steps``, from the last checkpoint in ``run`` if there is one.

    Returns
    -------
    The trunk, and the seconds its training took.

    Raises
    ------
    SystemExit : as :func:`fit`; lightly missing.
    """
    objective, architecture, seed = plan()[name]
    model = make_objective(objective, architecture, seed, settings).train()
    if objective == "untrained":
        return model.trunk, 0.0

    def loss(step: int) -> Tensor:
        return model(batch(step, seed, settings), step / steps)

    return model.trunk, fit(name, model, loss, seed, steps, run, recipe_of(name, steps, settings), settings)


def fit(
    name: str, model: nn.Module, loss_of, seed: int, steps: int, run: Path, recipe: str, settings: dict
) -> float:
    """Minimise ``loss_of(step)`` over ``steps``, from the last checkpoint in ``run``; the seconds it took.

    ``recipe`` is what the run is, as one text: it is kept with every checkpoint.

    Raises
    ------
    SystemExit : a checkpoint of another recipe, a loss that is not finite.
    """
    optimizer = make_optimizer(model, settings)
    run.mkdir(parents=True, exist_ok=True)
    checkpoint, log, start, seconds = run / "checkpoint.pt", run / "curve.csv", 0, 0.0
    if checkpoint.exists():
        state = torch.load(checkpoint, weights_only=True)
        if state["recipe"] != recipe:
            raise SystemExit(
                f"{checkpoint} was made with other settings or steps; name another --runs folder, or remove it."
            )
        model.load_state_dict(state["model"])
        optimizer.load_state_dict(state["optimizer"])
        start, seconds = state["step"], state["seconds"]
        rows = log.read_text().splitlines()  # drop what was logged after the checkpoint
        kept = [row for row in rows if not row[:1].isdigit() or int(row.split(",")[0]) <= start]
        log.write_text("\n".join(kept) + "\n")
        print(f"{name}: resuming at step {start}", flush=True)
    else:
        log.write_text("step,loss,seconds\n")
    began, losses = time.time() - seconds, []
    for step in range(start, steps):
        for group in optimizer.param_groups:
            group["lr"] = rate(step, steps, settings)
        torch.manual_seed(seed * 1_000_003 + step)  # views and masks: the same after a resume
        loss = loss_of(step)
        if not torch.isfinite(loss):
            raise SystemExit(f"{name}: the loss is {loss.item()} at step {step}; lower the rate.")
        optimizer.zero_grad(set_to_none=True)
        loss.backward()
        nn.utils.clip_grad_norm_(model.parameters(), 1.0)
        optimizer.step()
        losses.append(loss.item())
        last = step + 1 == steps
        if (step + 1) % 25 == 0 or last:
            row = f"{step + 1},{np.mean(losses):.4f},{time.time() - began:.0f}"
            with log.open("a") as file:
                file.write(row + "\n")
            print(f"{name}: {row}", flush=True)
            losses = []
        if (step + 1) % SAVE_EVERY == 0 or last:
            partial = checkpoint.with_suffix(".partial")
            torch.save(
                {
                    "model": model.state_dict(),
                    "optimizer": optimizer.state_dict(),
                    "step": step + 1,
                    "recipe": recipe,
                    "seconds": time.time() - began,
                },
                partial,
            )
            partial.replace(checkpoint)  # an interruption never leaves half a checkpoint
    return time.time() - began


# --- export ---------------------------------------------------------------------------------------


def export(
    trunk: nn.Module, name: str, steps: int, seconds: float, out: Path, settings: dict = SETTINGS
) -> None:
    """Write the trunk's weights, float16, and the index of all that is in the folder."""
    out.mkdir(parents=True, exist_ok=True)
    # inside the file, so that the index can always be made again from the files alone
    about = {
        "recipe": recipe_of(name, steps, settings),
        "seconds": str(round(seconds)),
        "threads": str(torch.get_num_threads()),
        "parameters": str(sum(p.numel() for p in trunk.parameters())),
        "versions": f"torch {torch.__version__}, timm {timm.__version__}, open_clip {open_clip.__version__}",
    }
    save_half(trunk.state_dict(), out / f"{name}.safetensors", about)
    write_index(out)


def save_half(weights: dict[str, Tensor], path: Path, about: dict[str, str] | None = None) -> None:
    """Write weights as float16 safetensors with a note: whole, or not at all."""
    partial = path.with_suffix(".partial")
    save_file(
        {key: value.detach().half().contiguous() for key, value in weights.items()}, partial, metadata=about
    )
    partial.chmod(0o644)  # safetensors makes files that only their owner can read
    partial.replace(path)


def read_about(path: Path) -> dict[str, str]:
    """What :func:`export` noted in a file of weights."""
    with safe_open(path, "pt") as file:
        return file.metadata()


def write_index(out: Path) -> None:
    """zoo.json of the weights in a folder, in the plan's order."""
    listed = None
    # again if another process exported meanwhile, so that the last to write has seen every file
    while listed != (listed := [name for name in plan() if (out / f"{name}.safetensors").is_file()]):
        records = [_record(name, out / f"{name}.safetensors") for name in listed]
        partial = out / f"zoo.json.{os.getpid()}.partial"
        partial.write_text(json.dumps(records, indent=1) + "\n")
        partial.replace(out / "zoo.json")


def _record(name: str, path: Path) -> dict:
    about = read_about(path)
    recipe = json.loads(about["recipe"])
    return {
        "name": name,
        "objective": recipe["objective"],
        "family": OBJECTIVES[recipe["objective"]],
        "architecture": recipe["architecture"],
        "seed": recipe["seed"],
        "steps": recipe["steps"],
        "batch": recipe["batch"],
        "seconds": int(about["seconds"]),
        "threads": int(about["threads"]),
        "parameters": int(about["parameters"]),
        "preprocess": {
            "size": [CANVAS, CANVAS], "mean": [MEAN] * 3, "std": [STD] * 3, "interpolation": "bicubic",
        },
        "file": path.name,
        "sha256": hashlib.sha256(path.read_bytes()).hexdigest(),
    }  # fmt: skip


def is_exported(name: str, steps: int, out: Path, settings: dict = SETTINGS) -> bool:
    """Whether the folder has this encoder, trained by these settings.

    Raises
    ------
    SystemExit : it has one trained by other settings or steps.
    """
    path = out / f"{name}.safetensors"
    if not path.is_file():
        return False
    if read_about(path)["recipe"] != recipe_of(name, steps, settings):
        raise SystemExit(
            f"{path} was trained with other settings or steps; remove it, or name another --out folder."
        )
    return True


@contextmanager
def claimed(run: Path, wait: bool = False) -> Iterator[bool]:
    """Whether this process has the run for itself, at once or after waiting for the process that has it; the
    system frees the claim when a process ends, however.
    """
    run.mkdir(parents=True, exist_ok=True)
    with (run / "claim").open("w") as file:
        try:
            fcntl.flock(file, fcntl.LOCK_EX if wait else fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            yield False
        else:
            yield True


def unclaimed(runs: Mapping[K, Path]) -> Iterator[tuple[K, Path]]:
    """The runs that no other process has in hand, each claimed while the loop is at it."""
    for key, run in runs.items():
        with claimed(run) as mine:
            if mine:
                yield key, run
            else:
                print(f"{run.name}: in the hands of another process", flush=True)


def train_zoo(names: list[str], steps: int, runs: Path, out: Path, settings: dict = SETTINGS) -> None:
    """Train and export what is missing of the named encoders, one after the other."""
    for name, run in unclaimed({name: runs / name for name in names}):
        if not is_exported(name, steps, out, settings):
            trunk, seconds = train(name, steps, run, settings)
            export(trunk, name, steps, seconds, out, settings)
            print(f"{name}: exported", flush=True)
    if any(out.glob("*.safetensors")):
        write_index(out)  # also of what an interruption kept out of it


def step_seconds(name: str, count: int, settings: dict = SETTINGS) -> float:
    """Median seconds of a training step here, over ``count`` after a first one that is not counted."""
    objective, architecture, seed = plan()[name]
    if objective == "untrained":
        return 0.0
    model = make_objective(objective, architecture, seed, settings).train()
    optimizer, taken = make_optimizer(model, settings), []
    for step in range(count + 1):
        began = time.time()
        model(batch(step, seed, settings), 0.0).backward()
        optimizer.step()
        optimizer.zero_grad(set_to_none=True)
        taken.append(time.time() - began)
    return float(np.median(taken[1:]))


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--only", nargs="+", metavar="NAME", help="some encoders of the plan")
    parser.add_argument("--list", action="store_true", help="print the plan and what is done, and stop")
    parser.add_argument("--time", type=int, metavar="N", help="time N steps of each kind, and stop")
    parser.add_argument("--steps", type=int, default=STEPS)
    parser.add_argument("--threads", type=int, help="torch's threads (all cores)")
    parser.add_argument("--runs", type=Path, default=RUNS, help="folder of checkpoints and logs (build/zoo)")
    parser.add_argument("--out", type=Path, default=OUT, help="folder to export to (the package's own)")
    arguments = parser.parse_args()
    if arguments.threads:
        torch.set_num_threads(arguments.threads)
    names = arguments.only or list(plan())
    for name in names:
        if name not in plan():
            raise SystemExit(f"Unknown encoder {name!r}; there are {', '.join(plan())}.")
    if arguments.list:
        for name in names:
            run, path = arguments.runs / name, arguments.out / f"{name}.safetensors"
            if path.is_file():
                state = "exported"
            elif (log := run / "curve.csv").is_file():
                state = f"in training, step {log.read_text().splitlines()[-1].split(',')[0]}"
            else:
                state = "to do"
            print(f"{name:18} {OBJECTIVES[plan()[name][0]]:18} {state}")
    elif arguments.time:
        timed: dict[tuple[str, str], float] = {}
        for name in names:
            kind = plan()[name][:2]
            if kind not in timed:
                timed[kind] = step_seconds(name, arguments.time)
            print(
                f"{name:18} {timed[kind]:.2f} s a step, {timed[kind] * arguments.steps / 60:5.1f} min",
                flush=True,
            )
        total = sum(timed[plan()[name][:2]] for name in names) * arguments.steps / 60
        print(f"{total:.0f} minutes in all with {torch.get_num_threads()} thread(s)")
    else:
        train_zoo(names, arguments.steps, arguments.runs, arguments.out)


if __name__ == "__main__":
    main()
