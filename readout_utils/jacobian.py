"""How an embedding answers to its pixels: the Jacobian's spectrum, its effective rank, finite changes.

Shapes throughout: x (B, C, H, W) pixels as the function takes them, P = C H W of them an image, D the
embedding's width, J(x) = d embedding / d pixels, (D, P) for each image. A function maps (B, C, H, W) to
(B, D), each image by itself; :func:`readout` makes one of an encoder.

Derivatives are exact (automatic differentiation, :mod:`torch.func`); decompositions are in float64. Results
do not depend on the other images of a batch.
"""

from __future__ import annotations

import warnings
from collections.abc import Callable, Iterator
from contextlib import contextmanager

import numpy as np
import torch
import torch.nn.functional as F
from torch import Tensor, nn
from torch.nn.attention import SDPBackend, sdpa_kernel

from .encoders import DualEncoder
from .scenes import _NOISE_TILE, CANVAS, NOUNS, STYLES, Scenes, draw_scenes

Function = Callable[[Tensor], Tensor]

#: The published setting: leading singular values, power iterations.
K = 32
ITERATIONS = 5

METHODS = ("exact", "randomized")
POINTS = ("pooled", "normalized")
#: What :func:`change_scenes` can change.
CHANGES = ("move", "swap", "noun", "style", "mirror", "background", "noise")

# Passes through the function that run at once, images times directions: bounds the memory.
_PASSES = 64


def readout(encoder: DualEncoder | nn.Module, point: str = "pooled") -> Function:
    """The function pixels (B, 3, H, W) -> embedding (B, D), which can be differentiated.

    Parameters
    ----------
    encoder : a :class:`DualEncoder`, whose pixels ``encoder.to_pixels`` makes of pictures; or any module in
        evaluation mode, whose output is flattened to (B, D).
    point : where to read. ``"pooled"``: the embedding as it leaves the encoder, before any normalisation;
        ``"normalized"``: on the unit sphere, where cosines compare it (its Jacobian cannot have the
        radial direction, and scales with 1 / length). Jacobians compare only at the same point.

    Raises
    ------
    ValueError : an unknown point, something that is no encoder, a module in training mode (its embedding of
        an image would be random or depend on the batch).
    """
    if point not in POINTS:
        raise ValueError(f"Unknown readout point {point!r}; there are {', '.join(POINTS)}.")
    if isinstance(encoder, DualEncoder):

        def pooled(pixels: Tensor) -> Tensor:
            return encoder._tower.forward(pixels, None)[0]

    elif isinstance(encoder, nn.Module):
        if any(module.training for module in encoder.modules()):
            raise ValueError(
                f"{type(encoder).__name__} is in training mode, where dropout and batch statistics change "
                "its embeddings; call its eval() first."
            )

        def pooled(pixels: Tensor) -> Tensor:
            out = encoder(pixels)
            if not isinstance(out, Tensor):
                raise ValueError(
                    f"{type(encoder).__name__} returns a {type(out).__name__}, not a tensor; wrap it in a "
                    "function that picks the embedding."
                )
            return out.flatten(1)

    else:
        raise ValueError(f"An encoder is a DualEncoder or a torch module, not {type(encoder).__name__}.")
    return pooled if point == "pooled" else lambda pixels: F.normalize(pooled(pixels), dim=-1)


# --- the Jacobian and its products ----------------------------------------------------------------


def jacobian_matrix(function: Function, x: Tensor) -> Tensor:
    """The Jacobian of every image, (B, D, P), by D reverse passes that run in batches.

    Parameters
    ----------
    function : (B, C, H, W) -> (B, D), each image by itself.
    x : (B, C, H, W) pixels. The result takes B D P numbers; give it few large images at a time.

    Raises
    ------
    ValueError : x of another shape or not finite; a function that cannot be differentiated at x, mixes the
        images of a batch, or returns something other than finite (B, D).
    """
    x, width = _checked(function, x)
    return _matrix(function, x, width)


def _matrix(function: Function, x: Tensor, width: int) -> Tensor:
    eye = torch.eye(width, dtype=x.dtype, device=x.device)
    return _pull(function, x, eye.expand(len(x), -1, -1))


def _push(function: Function, x: Tensor, directions: Tensor) -> Tensor:
    """J d of every image's k directions: (B, k, P) to (B, k, D), by forward passes."""
    tangents = directions.to(x).unflatten(-1, x.shape[1:]).transpose(0, 1)  # (k, B, C, H, W)
    with _differentiable():
        try:
            product = _in_batches(x, lambda d: torch.func.jvp(function, (x,), (d,))[1])(tangents)
        except NotImplementedError:
            # An operation without a forward derivative: J^T u is linear in u, and its transpose is J.
            out, pull = torch.func.vjp(function, x)
            _, push = torch.func.vjp(lambda u: pull(u)[0], torch.zeros_like(out))
            product = _in_batches(x, lambda d: push(d)[0])(tangents)
    return product.transpose(0, 1)


def _pull(function: Function, x: Tensor, cotangents: Tensor) -> Tensor:
    """J^T u of every image's k cotangents: (B, k, D) to (B, k, P), by reverse passes."""
    with _differentiable():
        _, pull = torch.func.vjp(function, x)
        product = _in_batches(x, lambda u: pull(u)[0])(cotangents.to(x).transpose(0, 1))
    return product.flatten(2).transpose(0, 1)


def _in_batches(x: Tensor, product: Function) -> Function:
    return torch.func.vmap(product, chunk_size=max(1, _PASSES // len(x)))


@contextmanager
def _differentiable() -> Iterator[None]:
    """Attention computed by kernels that have all derivatives; no gradients for the weights."""
    fast_path = torch.backends.mha.get_fastpath_enabled()
    torch.backends.mha.set_fastpath_enabled(False)  # nn.MultiheadAttention's has no derivative
    try:
        # fused attention kernels have no forward derivative, and their backward none of its own
        with (
            torch.inference_mode(False),
            torch.no_grad(),
            sdpa_kernel(SDPBackend.MATH),
            warnings.catch_warnings(),
        ):
            # torch's own forward derivatives are made by a function that torch calls deprecated
            warnings.filterwarnings("ignore", "`torch.jit.script`")
            yield
    finally:
        torch.backends.mha.set_fastpath_enabled(fast_path)


def _checked(function: Function, x: Tensor) -> tuple[Tensor, int]:
    """x as a plain tensor and the embedding's width; refused if the function has no Jacobian there."""
    if not isinstance(x, Tensor) or x.ndim != 4 or 0 in x.shape or not x.is_floating_point():
        what = f"{tuple(x.shape)} of {x.dtype}" if isinstance(x, Tensor) else type(x).__name__
        raise ValueError(
            f"Pixels are a tensor (B, C, H, W) of floats, not {what}; encoder.to_pixels(images) makes one."
        )
    if not torch.isfinite(x).all():
        raise ValueError("The pixels hold NaN or infinity.")
    if not callable(function):
        raise ValueError(
            f"{type(function).__name__} is no function of pixels; readout(encoder) makes one of an encoder."
        )
    with _differentiable(), torch.enable_grad():
        x = x.detach().clone()  # a tensor made in inference mode becomes a plain one
        first = x[:1].clone().requires_grad_()
        try:
            alone = function(first)
        except RuntimeError as error:
            if "nference tensor" in str(error):
                raise ValueError(
                    "The function uses tensors made in inference mode, which have no derivatives; make "
                    f"them outside torch.inference_mode() ({error})."
                ) from error
            if "numpy()" in str(error):
                raise ValueError(
                    f"The function leaves torch, which loses its derivative; stay in torch ({error})."
                ) from error
            raise
        if not isinstance(alone, Tensor) or alone.ndim != 2 or len(alone) != 1 or not alone.shape[1]:
            what = tuple(alone.shape) if isinstance(alone, Tensor) else type(alone).__name__
            raise ValueError(f"The function returns {what} for one image; (1, D) is wanted.")
        # a view made without gradients says it requires them, and so the way back is walked too
        total = alone.sum()
        if not total.requires_grad or torch.autograd.grad(total, first, allow_unused=True)[0] is None:
            raise ValueError(
                f"The function's output ({alone.dtype}) has no derivative with respect to its pixels: it "
                "is detached, computed without gradients or in inference mode, or discrete (argmax, "
                "rounding to integers). For an encoder, readout(encoder) can be differentiated."
            )
    with _differentiable():
        together = function(x)
    if not torch.isfinite(together).all():
        raise ValueError("The function returned NaN or infinity.")
    scale = together[:1].abs().max()
    if together.shape[0] != len(x) or (together[:1] - alone.detach()).abs().max() > 1e-3 * scale:
        raise ValueError(
            "The function embeds an image differently in other company; it must treat the images of a batch "
            "one by one (a module with batch normalisation belongs in evaluation mode)."
        )
    return x, alone.shape[1]


# --- singular values and their effective rank -----------------------------------------------------


def singular_values(
    function: Function,
    x: Tensor,
    k: int = K,
    method: str = "exact",
    iterations: int = ITERATIONS,
    seed: int = 0,
) -> Tensor:
    """The k leading singular values of every image's Jacobian, largest first: (B, k) float64.

    Parameters
    ----------
    function : (B, C, H, W) -> (B, D), each image by itself.
    x : (B, C, H, W) pixels.
    k : how many, at most min(D, P).
    method : ``"exact"`` makes the Jacobian by D reverse passes and decomposes it. ``"randomized"`` is the
        randomized range finder (Halko, Martinsson and Tropp 2011, algorithms 4.4 and 5.1) as Chung and
        Kim (2026) use it: an orthonormal Q from J times k random orthonormal input directions, sharpened
        by power iterations (J^T, then J, each followed by a QR decomposition), then the singular values
        of Q^T J; in all (iterations + 1) k forward and as many reverse passes, whatever D. It never
        overestimates a singular value, and underestimates the last ones by a little.
    iterations : power iterations. Where the spectrum decays slowly they decide: without them Q misses
        part of the leading directions and the effective rank is off by a tenth and more, in either
        direction. (The singular values of J times the random directions, with no Q^T J at all, are too
        equal there, and inflate the rank.)
    seed : of the random directions. All images get the same ones.

    Raises
    ------
    ValueError : as :func:`jacobian_matrix`; k below 1 or above min(D, P), an unknown method, negative
        iterations.
    """
    if method not in METHODS:
        raise ValueError(f"Unknown method {method!r}; there are {', '.join(METHODS)}.")
    if iterations != int(iterations) or iterations < 0:
        raise ValueError(f"Power iterations are a whole number of at least 0, not {iterations!r}.")
    x, width = _checked(function, x)
    pixels = x[0].numel()
    if k != int(k) or not 1 <= k <= min(width, pixels):
        raise ValueError(
            f"A Jacobian of {width} embedding dimensions by {pixels} pixels has {min(width, pixels)} "
            f"singular values; k = {k} must lie between 1 and that."
        )
    if method == "exact":
        return torch.linalg.svdvals(_matrix(function, x, width).double())[:, :k]
    generator = torch.Generator().manual_seed(seed)
    probes = torch.randn(pixels, k, generator=generator, dtype=torch.float64).to(x.device)
    directions = torch.linalg.qr(probes).Q.mT.expand(len(x), -1, -1)
    for round_ in range(iterations + 1):
        basis = _orthonormal(_push(function, x, directions))  # (B, k, D), rows span J's leading range
        projected = _pull(function, x, basis)  # (B, k, P) = Q^T J
        if round_ < iterations:
            directions = _orthonormal(projected)
    return torch.linalg.svdvals(projected.double())


def _orthonormal(rows: Tensor) -> Tensor:
    """Orthonormal rows (B, k, n) float64 that span the given ones."""
    return torch.linalg.qr(rows.double().mT).Q.mT


def effective_rank(s: Tensor, k: int | None = None) -> Tensor:
    """(sum s)^2 / sum s^2 over the k leading singular values: (...) float64 in [1, k].

    The participation ratio of the singular values themselves, not of their squares, and not the exponential
    of their entropy (Chung and Kim 2026). It ignores the scale of s.

    Parameters
    ----------
    s : (..., m) singular values, in any order.
    k : how many to take, all by default.

    Raises
    ------
    ValueError : k below 1 or above m, negative values, NaN or infinity, all values 0 (no rank is defined).
    """
    s = torch.as_tensor(s, dtype=torch.float64)
    if s.ndim == 0 or s.shape[-1] == 0:
        raise ValueError(f"Singular values are (..., m) with m of at least 1, not {tuple(s.shape)}.")
    k = s.shape[-1] if k is None else k
    if k != int(k) or not 1 <= k <= s.shape[-1]:
        raise ValueError(f"k = {k} must lie between 1 and the {s.shape[-1]} singular values given.")
    if not torch.isfinite(s).all() or (s < 0).any():
        raise ValueError("Singular values are finite and not negative; these are not.")
    leading = s.sort(dim=-1, descending=True).values[..., :k]
    if (leading[..., 0] == 0).any():
        raise ValueError("All singular values are 0: the embedding does not answer to its pixels there.")
    leading = leading / leading[..., :1]  # so that no square underflows
    return leading.sum(-1) ** 2 / (leading**2).sum(-1)


def jacobian_effective_rank(
    function: Function,
    images: Tensor,
    k: int = K,
    method: str = "randomized",
    iterations: int = ITERATIONS,
    seed: int = 0,
    batch_size: int = 4,
) -> Tensor:
    """Jacobian effective rank JER(x) = (sum s)^2 / sum s^2 of every image: (B,) float64 in [1, k].

    s are the k leading singular values of J(x) (Chung and Kim 2026; their figure is the mean over images,
    with k = 32 and 5 iterations). Values compare only at equal k, method and iterations, readout point and
    inputs. Scaling embedding or pixels changes nothing; scaling colour channels differently does.

    Parameters
    ----------
    function : (B, C, H, W) -> (B, D), each image by itself; ``readout(encoder)`` for an encoder.
    images : (B, C, H, W) pixels as the function takes them; ``encoder.to_pixels(pictures)``.
    k, method, iterations, seed : see :func:`singular_values`. ``"exact"`` is the cheaper one where D is
        below about 2 (iterations + 1) k.
    batch_size : images whose Jacobians are held at once.

    Raises
    ------
    ValueError : as :func:`singular_values`; a Jacobian that is 0 (the image is named).
    """
    if batch_size < 1:
        raise ValueError(f"batch_size is at least 1, not {batch_size}.")
    if not isinstance(images, Tensor) or images.ndim != 4 or not len(images):
        _checked(function, images)
    ranks = []
    for start in range(0, len(images), batch_size):
        values = singular_values(function, images[start : start + batch_size], k, method, iterations, seed)
        flat = torch.nonzero(values[:, 0] == 0)
        if len(flat):
            raise ValueError(
                f"The Jacobian of image {start + int(flat[0])} is 0: the embedding does not answer to its "
                "pixels there, and has no effective rank."
            )
        ranks.append(effective_rank(values))
    return torch.cat(ranks)


# --- chosen directions and finite changes ---------------------------------------------------------


def sensitivity(function: Function, x: Tensor, directions: Tensor) -> Tensor:
    """Length ``||J d||`` of the embedding's answer to chosen input directions: (B, n) float64.

    Parameters
    ----------
    function : (B, C, H, W) -> (B, D), each image by itself.
    x : (B, C, H, W) pixels.
    directions : (n, C, H, W) for all images alike, or (B, n, C, H, W). They are taken as they are: give
        unit directions for a gain that compares with singular values.

    Raises
    ------
    ValueError : as :func:`jacobian_matrix`; directions of another shape, none of them, NaN or infinity.
    """
    x, _ = _checked(function, x)
    if directions.ndim == 4:
        directions = directions.expand(len(x), *directions.shape)
    if directions.ndim != 5 or len(directions) != len(x) or directions.shape[2:] != x.shape[1:]:
        raise ValueError(
            f"Directions are (n, {', '.join(map(str, x.shape[1:]))}) or as many for each of {len(x)} "
            f"images, not {tuple(directions.shape)}."
        )
    if not directions.shape[1] or not torch.isfinite(directions).all():
        raise ValueError("Give at least one direction, and none with NaN or infinity.")
    return _push(function, x, directions.flatten(2)).double().norm(dim=-1)


def change_scenes(scenes: Scenes, change: str, seed: int = 0, pixels: int = 6) -> Scenes:
    """The same scenes with one thing changed.

    Parameters
    ----------
    scenes : scenes of at least one sticker; the first one is changed.
    change : ``"move"`` the sticker along an axis, to a side where it stays on the canvas and clear of the
        others if there is one; ``"swap"`` the places of the first two stickers; another ``"noun"`` (one that
        the scene does not have) in the same place; another drawing ``"style"``; ``"mirror"`` it; other
        ``"background"`` colours, all lighter or all darker; another cut of the ``"noise"``.
    seed : of what is drawn at random.
    pixels : how far to move.

    Raises
    ------
    ValueError : an unknown change, scenes without the stickers it needs, no distance to move.
    """
    if change not in CHANGES:
        raise ValueError(f"Unknown change {change!r}; there are {', '.join(CHANGES)}.")
    needed = {"swap": 2, "background": 0, "noise": 0}.get(change, 1)
    present = scenes.noun >= 0
    if present.shape[1] < needed or not present[:, :needed].all():
        raise ValueError(f"To {change!r}, every scene needs its first {needed} sticker(s).")
    rng, n = np.random.default_rng(seed), len(scenes)

    def other(values: np.ndarray, count: int) -> np.ndarray:
        """Another of ``count`` indices, each equally likely."""
        return (values + rng.integers(1, count, values.shape)) % count

    def first(values: np.ndarray, new: np.ndarray) -> np.ndarray:
        """The array with another value for the first sticker."""
        return np.concatenate([new[:, None], values[:, 1:]], axis=1)

    if change == "swap":
        order = np.r_[1, 0, 2 : present.shape[1]]
        return scenes.replace(
            **{name: _on_canvas(getattr(scenes, name)[:, order], scenes.size) for name in ("x", "y")}
        )
    if change == "noun":
        noun = other(scenes.noun[:, 0], len(NOUNS))
        while (clash := (noun[:, None] == scenes.noun).any(1)).any():
            noun[clash] = other(scenes.noun[clash, 0], len(NOUNS))
        return scenes.replace(noun=first(scenes.noun, noun))
    if change == "style":
        return scenes.replace(style=first(scenes.style, other(scenes.style[:, 0], len(STYLES))))
    if change == "mirror":
        return scenes.replace(mirrored=first(scenes.mirrored, ~scenes.mirrored[:, 0]))
    if change == "background":
        shift = rng.integers(20, 41, (n, 1, 3)) * rng.choice([-1, 1], (n, 1, 3))
        # away from the end that the shift would reach
        shift = np.where((scenes.corners + shift).clip(0, 255) == scenes.corners + shift, shift, -shift)
        return scenes.replace(corners=(scenes.corners + shift).clip(0, 255))
    if change == "noise":
        return scenes.replace(noise=other(scenes.noise, _NOISE_TILE - CANVAS + 1))
    if pixels < 1 or pixels != int(pixels):
        raise ValueError(f"A sticker moves by a whole number of at least 1 pixel, not {pixels!r}.")
    steps = pixels * np.array([[1, 0], [-1, 0], [0, 1], [0, -1]])
    place = np.stack([scenes.x, scenes.y], axis=-1)  # (n, K, 2)
    goals = place[:, :1] + steps  # (n, 4, 2)
    inside = (goals == _on_canvas(goals, scenes.size[:, :1, None])).all(-1)
    reach = 0.42 * (scenes.size[:, :1] + scenes.size[:, 1:])
    apart = np.abs(goals[:, :, None] - place[:, None, 1:]).max(-1) >= reach[:, None]
    clear = (apart | ~present[:, None, 1:]).all(-1)
    best = (2.0 * inside + clear + rng.random((n, 4))).argmax(1)  # at random among the equally good
    goal = goals[np.arange(n), best]
    return scenes.replace(x=first(scenes.x, goal[:, 0]), y=first(scenes.y, goal[:, 1]))


def _on_canvas(centre: np.ndarray, size: np.ndarray) -> np.ndarray:
    """The nearest centres at which stickers of these sizes are not cut at an edge."""
    return centre.clip(size // 2, CANVAS - size + size // 2)


def scene_sensitivity(
    function: Function,
    scenes: Scenes,
    change: str | Callable[[Scenes], Scenes],
    to_pixels: Callable[[np.ndarray], Tensor],
    *,
    seed: int = 0,
    pixels: int = 6,
) -> Tensor:
    """How far the embedding goes for a change of the scene, per pixel change: (B,) float64.

    The finite difference ``||f(x') - f(x)|| / ||x' - x||``, where x and x' are a scene's pixels before and after.
    It is at most the largest singular value of J on the way from x to x', and compares with singular values
    as :func:`sensitivity` of a unit direction does.

    Parameters
    ----------
    function : pixels (B, 3, H, W) -> (B, D); ``readout(encoder)``.
    scenes : :class:`readout_utils.scenes.Scenes`.
    change : what :func:`change_scenes` changes, or a function from scenes to as many scenes.
    to_pixels : pictures (B, 64, 64, 3) uint8 to the function's pixels; ``encoder.to_pixels``.
    seed, pixels : see :func:`change_scenes`.

    Raises
    ------
    ValueError : as :func:`change_scenes`; a change that leaves a picture as it was (the scene is named), a
        function that returns NaN or infinity.
    """
    changed = change(scenes) if callable(change) else change_scenes(scenes, change, seed, pixels)
    if len(changed) != len(scenes):
        raise ValueError(f"The change made {len(changed)} scenes of {len(scenes)}.")
    pixels_before, pixels_after = (to_pixels(draw_scenes(s)) for s in (scenes, changed))
    with torch.no_grad():
        before, after = (
            torch.cat([function(part).double() for part in whole.split(_PASSES)])
            for whole in (pixels_before, pixels_after)
        )
    if not (torch.isfinite(before).all() and torch.isfinite(after).all()):
        raise ValueError("The function returned NaN or infinity.")
    step = (pixels_after - pixels_before).double().flatten(1).norm(dim=1)
    if (step == 0).any():
        raise ValueError(
            f"The change leaves the picture of scene {int(step.argmin())} as it was; leave such scenes out."
        )
    return (after - before).flatten(1).norm(dim=1) / step
