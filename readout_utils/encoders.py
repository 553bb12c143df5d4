"""Frozen dual encoders: one pass over the pixels gives the pooled and the patch features.

:func:`load_encoder` opens the book's own pocket encoder, an open_clip architecture with pretrained
weights, a local folder, a hub repository or a checkpoint file, and returns a :class:`DualEncoder`.
"""

from __future__ import annotations

import difflib
import hashlib
import json
import math
from collections.abc import Sequence
from dataclasses import dataclass
from importlib import resources
from pathlib import Path

import numpy as np
import open_clip
import timm
import torch
import torch.nn.functional as F
from open_clip.transformer import ResidualAttentionBlock, VisionTransformer
from PIL import ExifTags, Image, ImageOps
from timm.layers import AttentionPoolLatent
from timm.models.vision_transformer import VisionTransformer as TimmVisionTransformer
from torch import Tensor, nn

#: Ways to make patch features, see :class:`DualEncoder`.
PATCH_FEATURES = ("value", "tokens", "maskclip", "clearclip", "sclip", "naclip")

_POCKETS = (
    "pocket",
    "pocket-sigmoid",
    "pocket-plain",
    "pocket-negatives",
    "pocket-positives",
    "pocket-balanced",
)
_MOST_PATCHES = 16384
_SUPPORTED = (
    "Supported image towers: open_clip's VisionTransformer with class-token or average pooling "
    "(ViT-B-32, ViT-B-16, ViT-L-14, ...), and timm's VisionTransformer with attention (MAP) "
    "pooling and no prefix tokens (SigLIP, SigLIP 2)."
)


@dataclass(frozen=True)
class ImageFeatures:
    """Features of B images that share a grid of N = rows x columns patches, all of unit norm.

    ``pooled`` is (B, D), ``patches`` (B, N, D) in reading order, ``grid`` (rows, columns). ``halves`` (B, 4, D) are
    pooled features of the image's left, right, upper and lower half, where they were asked for.
    """

    pooled: Tensor
    patches: Tensor
    grid: tuple[int, int]
    halves: Tensor | None = None

    def __len__(self) -> int:
        return len(self.pooled)

    def __getitem__(self, index) -> ImageFeatures:
        """Some of the images, by slice, list of indices or mask."""
        halves = None if self.halves is None else self.halves[index]
        return ImageFeatures(self.pooled[index], self.patches[index], self.grid, halves)

    @staticmethod
    def join(parts: Sequence[ImageFeatures]) -> ImageFeatures:
        """Features of one grid, in a row."""
        fields = [[getattr(part, name) for part in parts] for name in ("pooled", "patches", "halves")]
        pooled, patches, halves = (None if field[0] is None else torch.cat(field) for field in fields)
        return ImageFeatures(pooled, patches, parts[0].grid, halves)


class WordTokenizer:
    """Whole words to integers, for encoders with a small closed vocabulary.

    Text is lower-cased and cut at whitespace and punctuation. 0 pads, 1 starts, the words follow in
    the order given, the last integer ends a text (so that open_clip finds the end by argmax).

    Raises
    ------
    ValueError : a word outside the vocabulary (named, with near ones), a text that is empty or
        longer than the context; nothing is cut off silently.
    """

    def __init__(self, words: Sequence[str], context_length: int):
        self.words, self.context_length = tuple(words), context_length
        self._index = {word: i + 2 for i, word in enumerate(self.words)}
        self.end = len(self.words) + 2
        self.vocab_size = self.end + 1

    def encode(self, text: str) -> list[int]:
        """Integers of a text's words, without start and end."""
        words = "".join(c if c.isalnum() else " " for c in text.lower()).split()
        if not words:
            raise ValueError(f"There is no word in {text!r}.")
        for word in words:
            if word not in self._index:
                near = difflib.get_close_matches(word, self.words, n=3, cutoff=0.5)
                hint = f" Near words: {', '.join(near)}." if near else ""
                raise ValueError(
                    f"Unknown word {word!r} in {text!r}: this encoder knows {len(self.words)} words."
                    f"{hint} See encoder.tokenizer.words for all."
                )
        return [self._index[word] for word in words]

    def __call__(self, texts: str | Sequence[str]) -> Tensor:
        """(B, context_length) integers."""
        texts = [texts] if isinstance(texts, str) else texts
        tokens = torch.zeros(len(texts), self.context_length, dtype=torch.long)
        for row, text in zip(tokens, texts, strict=True):
            ids = [1, *self.encode(text), self.end]
            _check_length(text, len(ids), self.context_length)
            row[: len(ids)] = torch.tensor(ids)
        return tokens


def _check_length(text: str, length: int, context_length: int) -> None:
    if length > context_length:
        raise ValueError(
            f"A text of {length} tokens does not fit the context of {context_length}, "
            f"and would lose its end: {text!r}. Shorten it."
        )


# --- images of any kind to tensors ---------------------------------------------------------------


def to_rgb(image) -> Image.Image:
    """Any picture as an 8-bit RGB one.

    Takes a PIL image of any mode, a path, or an array or tensor of shape (H, W), (H, W, 1), (H, W, 3)
    or (H, W, 4): integers 0 to 255 or floats 0 to 1. Transparency is laid on white; 16-bit
    greys are scaled down; a camera's orientation tag is obeyed.

    Raises
    ------
    FileNotFoundError, ValueError : no such file, a file that is no image, an array of another shape
        or range, NaN.
    """
    if isinstance(image, (str, Path)):
        path = Path(image)
        if not path.is_file():
            raise FileNotFoundError(f"No image at {path}.")
        try:
            with Image.open(path) as opened:
                opened.load()
                image = opened.copy()
        except (OSError, SyntaxError) as error:
            raise ValueError(f"{path} does not open as an image: {error}") from error
    if isinstance(image, Tensor):
        image = image.detach().cpu().numpy()
    if isinstance(image, np.ndarray):
        image = _array_to_image(image)
    if not isinstance(image, Image.Image):
        raise ValueError(f"An image is a PIL image, an array, a tensor or a path, not {type(image)}.")
    if 0 in image.size:
        raise ValueError(f"The image is empty: {image.size[0]} x {image.size[1]} pixels.")
    if image.getexif().get(ExifTags.Base.Orientation, 1) != 1:
        image = ImageOps.exif_transpose(image)
    if image.mode == "RGB" and "transparency" not in image.info:
        return image
    if image.mode.startswith("I;16") or image.mode == "I":
        grey = np.asarray(image).astype(np.int64)
        if grey.min() < 0 or grey.max() > 65535:
            raise ValueError("A 32-bit grey image outside 0..65535 has no agreed brightness; rescale it.")
        if image.mode != "I" or grey.max() > 255:
            grey = (grey + 128) // 257
        return Image.fromarray(grey.astype(np.uint8)).convert("RGB")
    if image.mode == "F":
        return to_rgb(np.asarray(image))
    if image.mode in ("LA", "PA", "RGBA", "RGBa", "La") or "transparency" in image.info:
        image = image.convert("RGBA")
        white = Image.new("RGBA", image.size, "white")
        return Image.alpha_composite(white, image).convert("RGB")
    return image.convert("RGB")


def _array_to_image(array: np.ndarray) -> Image.Image:
    if array.ndim == 3 and array.shape[-1] == 1:
        array = array[..., 0]
    if not (array.ndim == 2 or (array.ndim == 3 and array.shape[-1] in (3, 4))) or 0 in array.shape:
        raise ValueError(
            "An image array is (H, W), (H, W, 1), (H, W, 3) or (H, W, 4), channels last and none of "
            f"them 0; got {array.shape}."
        )
    if np.issubdtype(array.dtype, np.floating):
        if not np.isfinite(array).all():
            raise ValueError("The image holds NaN or infinity.")
        if array.min() < 0 or array.max() > 1:
            raise ValueError(
                f"Float images lie in [0, 1]; this one spans [{array.min():.3g}, {array.max():.3g}]."
            )
        array = np.rint(array * 255)
    elif array.dtype != np.bool_ and (array.min() < 0 or array.max() > 255):
        raise ValueError(f"Integer images lie in 0..255; this one spans {array.min()}..{array.max()}.")
    else:
        array = array * (255 if array.dtype == np.bool_ else 1)
    return Image.fromarray(array.astype(np.uint8))


# --- image towers --------------------------------------------------------------------------------


class _ClassTower:
    """open_clip's VisionTransformer, pooled from its class token or by averaging."""

    def __init__(self, visual: VisionTransformer):
        blocks = visual.transformer.resblocks
        if (
            visual.attn_pool is not None
            or visual.pool_type not in ("tok", "avg")
            or visual.final_ln_after_pool
            or visual.proj is None
            or type(blocks[-1]) is not ResidualAttentionBlock
            or not isinstance(blocks[-1].attn, nn.MultiheadAttention)
            or blocks[-1].attn.in_proj_weight is None
        ):
            raise ValueError(f"This VisionTransformer is built in a way not supported. {_SUPPORTED}")
        self.visual, self.patch, self.grid = visual, visual.patch_size, visual.grid_size

    def forward(self, pixels: Tensor, kind: str | None) -> tuple[Tensor, Tensor | None]:
        """Pooled (B, D) and patch (B, N, D) features; no patch features for kind None."""
        visual = self.visual
        x = visual.conv1(pixels)
        rows, columns = x.shape[-2:]
        x = x.flatten(2).mT
        position = _resized_positions(visual.positional_embedding, 1, self.grid, (rows, columns))
        first = visual.class_embedding.to(x.dtype).expand(len(x), 1, -1)
        x = visual.ln_pre(torch.cat([first, x], 1) + position.to(x.dtype))
        *blocks, last = visual.transformer.resblocks
        for block in blocks:
            x = block(x)
        final = last(x)
        pooled = visual._pool(final)[0] @ visual.proj
        if kind is None:
            return pooled, None
        tokens = final if kind == "tokens" else _last_block(last, x, kind, (rows, columns))
        return pooled, visual.ln_post(tokens[:, 1:]) @ visual.proj


class _MapTower:
    """timm's VisionTransformer with an attention-pooling (MAP) head, as in SigLIP."""

    def __init__(self, visual):
        trunk = visual.trunk
        if (
            type(trunk) is not TimmVisionTransformer
            or not isinstance(trunk.attn_pool, AttentionPoolLatent)
            or trunk.num_prefix_tokens
            or trunk.attn_pool.latent_len != 1
            or trunk.attn_pool.pos_embed is not None
            or trunk.pos_embed is None
        ):
            raise ValueError(f"This timm tower is built in a way not supported. {_SUPPORTED}")
        self.visual, self.trunk = visual, trunk
        self.patch, self.grid = trunk.patch_embed.patch_size, trunk.patch_embed.grid_size

    def forward(self, pixels: Tensor, kind: str | None) -> tuple[Tensor, Tensor | None]:
        trunk, embed = self.trunk, self.trunk.patch_embed
        x = embed.proj(pixels)
        rows, columns = x.shape[-2:]
        x = embed.norm(x.flatten(2).mT)
        x = x + _resized_positions(trunk.pos_embed[0], 0, self.grid, (rows, columns)).to(x.dtype)
        for block in trunk.blocks:
            x = block(trunk.norm_pre(x)) if block is trunk.blocks[0] else block(x)
        x = trunk.norm(x)
        pooled = self._head(x)
        if kind is None:
            return pooled, None
        if kind == "tokens":
            if x.shape[-1] != pooled.shape[-1]:
                raise ValueError("Plain tokens of this tower do not live in the space of its texts.")
            return pooled, x
        if kind != "value":
            raise ValueError(f"Patch features {kind!r} need a class-pooled tower; use 'value' here.")
        # attention over a single key is the identity: the head's value path, token by token
        return pooled, self._head(x.flatten(0, 1)[:, None]).unflatten(0, x.shape[:2])

    def _head(self, tokens: Tensor) -> Tensor:
        return self.visual.head(self.trunk.head(self.trunk.fc_norm(self.trunk.attn_pool(tokens))))


def _resized_positions(position: Tensor, prefix: int, built: tuple, wanted: tuple) -> Tensor:
    """Position embeddings (prefix + N, C) for another grid, by bicubic interpolation of a copy."""
    if tuple(built) == tuple(wanted):
        return position
    first, grid = position[:prefix], position[prefix:]
    grid = grid.reshape(1, *built, -1).permute(0, 3, 1, 2).float()
    grid = F.interpolate(grid, size=wanted, mode="bicubic", align_corners=False)
    return torch.cat([first, grid.flatten(2)[0].mT.to(position.dtype)])


def _last_block(block: ResidualAttentionBlock, x: Tensor, kind: str, grid: tuple) -> Tensor:
    """The last block with its attention replaced, (B, 1 + N, C) to (B, 1 + N, C)."""
    attention, normed = block.attn, block.ln_1(x)
    q, k, v = F.linear(normed, attention.in_proj_weight, attention.in_proj_bias).chunk(3, -1)
    q, k, v = (
        t.unflatten(-1, (attention.num_heads, -1)).transpose(1, 2) for t in (q, k, v)
    )  # (B, heads, 1 + N, C / heads)
    scale = q.shape[-1] ** -0.5
    if kind in ("value", "maskclip"):
        mixed = v
    elif kind == "clearclip":
        mixed = torch.softmax(q @ q.mT * scale, -1) @ v
    elif kind == "sclip":
        mixed = (torch.softmax(q @ q.mT * scale, -1) + torch.softmax(k @ k.mT * scale, -1)) @ v
    else:  # naclip
        near = F.pad(_gaussian_window(grid).to(k), (1, 0, 1, 0))
        mixed = torch.softmax(k @ k.mT * scale + near, -1) @ v
    out = attention.out_proj(mixed.transpose(1, 2).flatten(2))
    if kind in ("maskclip", "sclip"):
        x = x + block.ls_1(out)
        out = x + block.ls_2(block.mlp(block.ln_2(x)))
    return out


def _gaussian_window(grid: tuple[int, int], deviation: float = 5.0) -> Tensor:
    """exp(-distance^2 / 2 deviation^2) between all patches, distances in patches: (N, N)."""
    rows, columns = (torch.arange(side, dtype=torch.float32) for side in grid)
    places = torch.cartesian_prod(rows, columns)
    return torch.exp(-torch.cdist(places, places).square() / (2 * deviation**2))


#: timm's name of the attention-pooled trunk of "pocket-sigmoid".
POCKET_TRUNK = "vit_pocket_map_patch8_64"


def register_pocket_trunk() -> None:
    """Make timm know :data:`POCKET_TRUNK`: open_clip builds timm towers by name alone."""
    if timm.is_model(POCKET_TRUNK):
        return

    def build(pretrained=False, pretrained_cfg=None, pretrained_cfg_overlay=None, cache_dir=None, **options):
        size = {"img_size": 64, "patch_size": 8, "embed_dim": 128, "depth": 4, "num_heads": 4}
        return TimmVisionTransformer(**size, class_token=False, **options)

    build.__name__ = POCKET_TRUNK
    timm.models.register_model(build)


def _unit(features: Tensor) -> Tensor:
    return F.normalize(features.float(), dim=-1).cpu()


# --- the encoder ---------------------------------------------------------------------------------


class DualEncoder:
    """A frozen image and text encoder.

    Parameters
    ----------
    model : an open_clip model with a supported image tower; it is put in evaluation mode and its
        parameters are never changed.
    tokenizer : texts to (B, context_length) integers.
    name : what tables call it.
    resolution : short side, in pixels, at which patch features are computed (published: 336). The
        image keeps its aspect and both sides are rounded to whole patches. None: the size the
        model was built for.
    patch_features : how patch features come out of the last block of a class-pooled tower.

        ``"value"``      the value path: output projection of the values alone, no attention, no
        residual, no MLP (Li et al. 2026; called MaskCLIP in ClearCLIP's comparison). For
        attention-pooled towers: the pooling head applied to each token alone.
        ``"tokens"``     the last block's tokens as they are.
        ``"maskclip"``   values, with residual and MLP (Zhou et al. 2022).
        ``"clearclip"``  softmax(q q^T) v, no residual, no MLP (Lan et al. 2024).
        ``"sclip"``      (softmax(q q^T) + softmax(k k^T)) v, with residual and MLP (Wang et al. 2024).
        ``"naclip"``     softmax(k k^T + Gaussian window) v, no residual, no MLP (Hajimiri et al. 2025).
    pooled_view : what the pooled feature sees. ``"own"``: the model's own preprocessing (for CLIP, a
        square centre crop, which can cut off what a relation is about); ``"whole"``: the same
        uncropped pixels as the patches. Where both are the same pixels, one pass computes both.
    halves : also pool the left, right, upper and lower half of every image, each at the scale of the patches, for
        :class:`readout_utils.readouts.HalfCrop`. Costs two more passes.
    device : where the model runs; features come back to the CPU.
    batch_size : images or texts a forward pass takes.
    """

    def __init__(
        self,
        model: nn.Module,
        tokenizer,
        *,
        name: str = "encoder",
        resolution: int | None = None,
        patch_features: str = "value",
        pooled_view: str = "own",
        halves: bool = False,
        device: str = "cpu",
        batch_size: int = 64,
    ):
        if patch_features not in PATCH_FEATURES:
            raise ValueError(
                f"Unknown patch features {patch_features!r}; there are {', '.join(PATCH_FEATURES)}."
            )
        if pooled_view not in ("own", "whole"):
            raise ValueError(f"pooled_view is 'own' or 'whole', not {pooled_view!r}.")
        visual = model.visual
        if isinstance(visual, VisionTransformer):
            self._tower = _ClassTower(visual)
        elif hasattr(visual, "trunk"):
            self._tower = _MapTower(visual)
        else:
            raise ValueError(f"Image tower {type(visual).__name__} is not supported. {_SUPPORTED}")
        self.model = model.eval().requires_grad_(False).to(device)
        self.tokenizer, self.name, self.device, self.batch_size = tokenizer, name, device, batch_size
        self.patch_features, self.pooled_view, self.halves = patch_features, pooled_view, halves
        built = visual.image_size
        self.built_size = (built, built) if isinstance(built, int) else tuple(built)
        self.resolution = resolution
        if resolution is not None and resolution < min(self._tower.patch):
            raise ValueError(f"Resolution {resolution} is below one patch of {self._tower.patch} px.")
        self._preprocess = open_clip.transform.PreprocessCfg(
            **{**open_clip.model.get_model_preprocess_cfg(model), "size": self.built_size}
        )
        self._own_transform = open_clip.transform.image_transform_v2(self._preprocess, is_train=False)

    def __repr__(self) -> str:
        rows, columns = self._tower.grid
        return f"DualEncoder({self.name!r}, {rows} x {columns} patches, {self.patch_features})"

    # images

    def size_of(self, image_size: tuple[int, int]) -> tuple[int, int]:
        """(height, width) at which an image of (width, height) pixels is read for its patches."""
        width, height = image_size
        if self.resolution is None and height * self.built_size[1] == width * self.built_size[0]:
            return self.built_size
        short = self.resolution or min(self.built_size)
        scale = short / min(width, height)
        patches = [
            max(1, round(side * scale / patch))
            for side, patch in zip((height, width), self._tower.patch, strict=True)
        ]
        if math.prod(patches) > _MOST_PATCHES:
            raise ValueError(
                f"An image of {width} x {height} px would give {patches[0]} x {patches[1]} patches at a short "
                f"side of {short} px; crop it, or ask for a smaller resolution."
            )
        return tuple(count * patch for count, patch in zip(patches, self._tower.patch, strict=True))

    def group_by_grid(self, images: Sequence) -> list[list[int]]:
        """Indices of the images, grouped so that each group can go to ``encode_images`` together."""
        groups: dict[tuple, list[int]] = {}
        for index, image in enumerate(images):
            groups.setdefault(self.size_of(to_rgb(image).size), []).append(index)
        return list(groups.values())

    def encode_images(self, images: Sequence) -> ImageFeatures:
        """Pooled and patch features of images that come to the same grid.

        Parameters
        ----------
        images : sequence of pictures (see :func:`to_rgb`), or one (B, H, W, 3) uint8 array.

        Raises
        ------
        ValueError : no images, images of different grids (``group_by_grid`` sorts them), a picture
            that cannot be read, features that come out NaN.
        """
        one = isinstance(images, (str, Path, Image.Image)) or (
            isinstance(images, (np.ndarray, Tensor)) and images.ndim != 4
        )
        if one:
            raise ValueError("encode_images takes several images; for a single one write [image].")
        if len(images) == 0:
            raise ValueError("No images to encode.")
        parts, sizes = [], set()
        for start in range(0, len(images), self.batch_size):
            batch = self._load(images[start : start + self.batch_size])
            sizes |= {self.size_of(image.size) for image in batch}
            if len(sizes) > 1:
                raise ValueError(
                    f"The images come to different sizes {sorted(sizes)}, and so to different grids of patches. "
                    "Sort them with encoder.group_by_grid(images) and encode each group."
                )
            (size,) = sizes
            parts.append(self._encode_batch(batch, size))
        features = ImageFeatures.join(parts)
        if not all(torch.isfinite(part).all() for part in (features.pooled, features.patches)):
            raise ValueError(f"Encoder {self.name!r} returned NaN or infinity; are its weights damaged?")
        return features

    @staticmethod
    def _load(images) -> list[Image.Image]:
        loaded = []
        for index, image in enumerate(images):
            try:
                loaded.append(to_rgb(image))
            except (ValueError, FileNotFoundError) as error:
                raise type(error)(f"Image {index} of the batch: {error}") from error
        return loaded

    @torch.inference_mode()
    def _encode_batch(self, images: list[Image.Image], size: tuple[int, int]) -> ImageFeatures:
        whole = self._normalised(images, size)
        same = self.pooled_view == "whole" or (
            size == self.built_size and all(image.size == size[::-1] for image in images)
        )
        pooled, patches = self._tower.forward(whole, self.patch_features)
        if not same:
            own = torch.stack([self._own_transform(image) for image in images]).to(self.device)
            pooled, _ = self._tower.forward(own, None)
        grid = tuple(side // patch for side, patch in zip(size, self._tower.patch, strict=True))
        halves = None
        if self.halves:
            high, wide = (
                -(-count // 2) * patch for count, patch in zip(grid, self._tower.patch, strict=True)
            )
            crops = (whole[..., :wide], whole[..., -wide:], whole[..., :high, :], whole[..., -high:, :])
            halves = _unit(torch.stack([self._tower.forward(crop, None)[0] for crop in crops], dim=1))
        return ImageFeatures(_unit(pooled), _unit(patches), grid, halves)

    def to_pixels(self, images: Sequence, size: tuple[int, int] | None = None) -> Tensor:
        """Pictures resized to (height, width) and normalised as the model expects: (B, 3, height, width).

        ``size`` defaults to the one at which the first picture is read for its patches.
        """
        images = self._load(images)
        return self._normalised(images, size or self.size_of(images[0].size))

    def _normalised(self, images: list[Image.Image], size: tuple[int, int]) -> Tensor:
        """:meth:`to_pixels` of pictures that are loaded already."""
        height, width = size
        resample = {"bilinear": Image.Resampling.BILINEAR}.get(
            self._preprocess.interpolation, Image.Resampling.BICUBIC
        )
        arrays = [
            np.asarray(image if image.size == (width, height) else image.resize((width, height), resample))
            for image in images
        ]
        pixels = torch.from_numpy(np.stack(arrays)).to(self.device).permute(0, 3, 1, 2).float() / 255
        mean, std = (
            torch.tensor(values, device=self.device)[:, None, None]
            for values in (self._preprocess.mean, self._preprocess.std)
        )
        return (pixels - mean) / std

    # texts

    @torch.inference_mode()
    def encode_texts(self, texts: Sequence[str]) -> Tensor:
        """Unit-norm features of texts: (B, D). Each distinct text is encoded once.

        Raises
        ------
        ValueError : no texts, an empty one, one too long for the context, an unknown word.
        """
        if isinstance(texts, str):
            raise ValueError(f"encode_texts takes a list of texts; write [{texts!r}].")
        if len(texts) == 0:
            raise ValueError("No texts to encode.")
        distinct = list(dict.fromkeys(texts))
        for text in distinct:
            if not isinstance(text, str) or not text.strip():
                raise ValueError(f"A text to encode is a non-empty string, not {text!r}.")
            _check_length(text, self._token_count(text), self.context_length)
        features = torch.cat(
            [
                self.model.encode_text(
                    self.tokenizer(distinct[start : start + self.batch_size]).to(self.device),
                    normalize=True,
                )
                for start in range(0, len(distinct), self.batch_size)
            ]
        )
        if not torch.isfinite(features).all():
            raise ValueError(f"Encoder {self.name!r} returned NaN or infinity; are its weights damaged?")
        place = {text: index for index, text in enumerate(distinct)}
        return features.float().cpu()[[place[text] for text in texts]]

    @property
    def context_length(self) -> int:
        """Tokens a text may have, start and end included."""
        return getattr(self.model, "context_length", None) or self.tokenizer.context_length

    def _token_count(self, text: str) -> int:
        if hasattr(self.tokenizer, "encode"):  # open_clip's own tokenizer and the word tokenizer
            return len(self.tokenizer.encode(text)) + 2
        ids = self.tokenizer.tokenizer(self.tokenizer.clean_fn(text), truncation=False)["input_ids"]
        return len(ids)


# --- loading -------------------------------------------------------------------------------------


def load_encoder(
    name: str = "pocket",
    *,
    architecture: str | None = None,
    activation: str | None = None,
    cache_dir: str | None = None,
    **options,
) -> DualEncoder:
    """Open a frozen dual encoder.

    Parameters
    ----------
    name :
        ``"pocket"``                        the small encoder trained for the book, shipped with it
        ``"pocket-sigmoid"``                another family, shipped too
        ``"pocket-plain"``, ``"pocket-negatives"``, ``"pocket-positives"``, ``"pocket-balanced"``
        fine-tunes of "pocket" on captions, with hard negatives, and with hard positives
        ``"<open_clip model>/<tag>"``       as ``open_clip.list_pretrained()`` lists them, e.g.
        "ViT-B-16-quickgelu/openai"; downloads the weights unless they are in the cache
        ``"local-dir:<folder>"``            a folder with open_clip_config.json and weights
        ``"hf-hub:<owner>/<repository>"``   the same, from the hub
        ``"<file>.pt"`` or ``".safetensors"``  a checkpoint; needs ``architecture`` and ``activation``
    architecture : open_clip model name of a checkpoint file.
    activation : "gelu" or "quickgelu", whichever the checkpoint was trained with. A file does not say
        and the wrong one changes every result without an error, so it must be stated.
    cache_dir : where downloads go.
    options : ``resolution``, ``patch_features``, ``pooled_view``, ``device``, ``batch_size``; see
        :class:`DualEncoder`.

    Raises
    ------
    ValueError, FileNotFoundError, RuntimeError : an unknown name, a missing or damaged file, an activation
        that does not match, an image tower that is not supported, a download that failed.
    """
    if not isinstance(name, str) or not name:
        raise ValueError(f"An encoder is named by a text such as 'pocket', not {name!r}.")
    if name in _POCKETS:
        with resources.as_file(resources.files(__package__).joinpath("data", name)) as folder:
            model, tokenizer = _from_folder(folder)
    elif name.startswith("local-dir:"):
        model, tokenizer = _from_folder(Path(name.removeprefix("local-dir:")).expanduser())
    elif name.startswith("hf-hub:"):
        model, tokenizer = _from_hub(name, cache_dir)
    elif Path(name).suffix in (".pt", ".pth", ".bin", ".safetensors"):
        model, tokenizer = _from_checkpoint(Path(name).expanduser(), architecture, activation)
    elif "/" in name:
        model, tokenizer = _from_tag(name, cache_dir)
    else:
        near = difflib.get_close_matches(name, [*_POCKETS, *open_clip.list_models()], n=3)
        hint = f" Near names: {', '.join(near)}." if near else ""
        raise ValueError(
            f"Unknown encoder {name!r}.{hint} Name 'pocket', '<open_clip model>/<tag>' (for example "
            "'ViT-B-16-quickgelu/openai'), 'local-dir:<folder>', 'hf-hub:<repository>' or a checkpoint file."
        )
    return DualEncoder(model, tokenizer, name=name, **options)


def _from_folder(folder: Path):
    config_file, words_file = folder / "open_clip_config.json", folder / "words.json"
    if not folder.is_dir():
        raise FileNotFoundError(f"No folder {folder}.")
    if not config_file.is_file():
        raise FileNotFoundError(f"{folder} has no open_clip_config.json; is it an open_clip model?")
    weights = [f for f in sorted(folder.iterdir()) if f.name.startswith("open_clip_") and f != config_file]
    if not weights:
        raise FileNotFoundError(f"{folder} has no weights (open_clip_model.safetensors or .bin).")
    recorded = folder / "SHA256"
    if recorded.is_file():
        wanted, name = recorded.read_text().split()
        digest = (
            hashlib.sha256((folder / name).read_bytes()).hexdigest() if (folder / name).is_file() else "none"
        )
        if digest != wanted:
            raise ValueError(
                f"{folder / name} is damaged: its SHA-256 is {digest[:12]}..., not the recorded one. "
                "Install the package again, or restore the file."
            )
    register_pocket_trunk()
    model = _reading(weights[0], lambda: open_clip.create_model(f"local-dir:{folder}"))
    if words_file.is_file():
        words = json.loads(words_file.read_text())
        return model, WordTokenizer(words, model.context_length)
    return model, open_clip.get_tokenizer(f"local-dir:{folder}")


def _reading(path: Path, load):
    """Run a loader; what goes wrong inside is reported with the file's name."""
    try:
        return load()
    except Exception as error:
        raise ValueError(f"The weights in {path} do not load ({type(error).__name__}: {error}).") from error


def _from_hub(name: str, cache_dir: str | None):
    try:
        model = open_clip.create_model(name, cache_dir=cache_dir, require_pretrained=True)
        return model, open_clip.get_tokenizer(name, cache_dir=cache_dir)
    except Exception as error:
        raise RuntimeError(
            f"Could not get {name!r} ({error}). Check the name and the network, or download the "
            "repository by other means and use 'local-dir:<folder>'."
        ) from error


def _from_tag(name: str, cache_dir: str | None):
    architecture, _, tag = name.rpartition("/")
    _check_architecture(architecture)
    tags = open_clip.list_pretrained_tags_by_model(architecture)
    if tag not in tags:
        raise ValueError(f"{architecture} has no weights called {tag!r}; there are: {', '.join(tags)}.")
    trained_quick = bool(open_clip.get_pretrained_cfg(architecture, tag).get("quick_gelu", False))
    _check_activation(architecture, trained_quick, f"{name!r} was trained")
    try:
        tokenizer = open_clip.get_tokenizer(architecture, cache_dir=cache_dir)
        return open_clip.create_model(architecture, pretrained=tag, cache_dir=cache_dir), tokenizer
    except ImportError as error:
        raise RuntimeError(
            f"{name!r} needs another package: {error}. Try: pip install transformers"
        ) from error
    except Exception as error:
        raise RuntimeError(
            f"Could not get the weights of {name!r} ({error}). Check the network, or download them by "
            "other means and pass the checkpoint file."
        ) from error


def _from_checkpoint(path: Path, architecture: str | None, activation: str | None):
    if not path.is_file():
        raise FileNotFoundError(f"No checkpoint at {path}.")
    if architecture is None:
        raise ValueError(f"Say which architecture {path} holds: architecture='ViT-B-16', for example.")
    _check_architecture(architecture)
    if activation not in ("gelu", "quickgelu"):
        raise ValueError(
            f"Say which activation {path} was trained with: activation='quickgelu' (OpenAI's weights "
            "and what was fine-tuned from them) or 'gelu'. A checkpoint does not tell."
        )
    _check_activation(architecture, activation == "quickgelu", f"{path} was trained")
    model = _reading(path, lambda: open_clip.create_model(architecture, pretrained=str(path)))
    return model, open_clip.get_tokenizer(architecture)


def _check_architecture(architecture: str) -> None:
    known = open_clip.list_models()
    if architecture not in known:
        near = difflib.get_close_matches(architecture, known, n=3)
        hint = f" Near names: {', '.join(near)}." if near else ""
        raise ValueError(f"open_clip has no architecture {architecture!r}.{hint}")


def _check_activation(architecture: str, trained_quick: bool, who: str) -> None:
    built_quick = bool(open_clip.get_model_config(architecture).get("quick_gelu", False))
    if built_quick == trained_quick:
        return
    used, built = ("QuickGELU", "GELU") if trained_quick else ("GELU", "QuickGELU")
    other = architecture + "-quickgelu" if trained_quick else architecture.removesuffix("-quickgelu")
    remedy = f" Use {other!r}." if other in open_clip.list_models() else ""
    raise ValueError(
        f"Activation mismatch: {who} with {used}, but {architecture} is built with {built}, "
        f"which changes every feature silently.{remedy}"
    )
