"""What several test modules share."""

from __future__ import annotations

from pathlib import Path

import open_clip
import pytest
import torch
from open_clip.model import CLIP

from readout_utils.encoders import DualEncoder, WordTokenizer, load_encoder
from readout_utils.scenes import vocabulary

ROOT = Path(__file__).parents[1]
SHARED = ROOT.parent / "shared"


@pytest.fixture(scope="session")
def pocket() -> DualEncoder:
    return load_encoder("pocket")


def random_pocket(seed: int = 0, size=(64, 64), patch: int = 8, **vision) -> DualEncoder:
    """An untrained encoder of the pocket architecture, or a variation of it."""
    torch.manual_seed(seed)
    tokenizer = WordTokenizer(vocabulary(), 18)
    model = CLIP(
        embed_dim=32,
        vision_cfg={
            "image_size": size, "patch_size": patch, "width": 64, "layers": 3, "head_width": 16, **vision
        },
        text_cfg={
            "context_length": 18, "vocab_size": tokenizer.vocab_size, "width": 32, "heads": 2, "layers": 1
        },
    )  # fmt: skip
    with torch.no_grad():  # a trained model's towers are not at their initial scale
        for parameter in model.visual.parameters():
            parameter.add_(torch.randn_like(parameter) * 0.02)
    open_clip.model.set_model_preprocess_cfg(
        model, {"size": size, "mean": (0.5,) * 3, "std": (0.5,) * 3, "interpolation": "bicubic"}
    )
    return DualEncoder(model, tokenizer, name=f"random {seed}")


@pytest.fixture(scope="session")
def make_random_pocket():
    return random_pocket


@pytest.fixture(scope="session")
def shared() -> Path:
    if not SHARED.is_dir():
        pytest.skip("the reference files are not beside the project")
    return SHARED
