"""Sticker scenes: small pictures in which everything is known, and benchmarks made of them.

A scene is one to three stickers (emoji of everyday nouns, in several drawing styles) on a coloured
gradient with a little noise. Scenes are described by arrays of integers, drawn in integer
arithmetic, and so are the same on every machine.
"""

from __future__ import annotations

import difflib
import zlib
from collections.abc import Sequence
from dataclasses import dataclass, replace
from functools import cache, lru_cache
from importlib import resources

import numpy as np
from PIL import Image

from .captions import DOWN, LEFT, RIGHT, UP, article, relate

#: Every noun of the small world and the emoji code point that draws it.
NOUNS: dict[str, str] = {
    # animals
    "dog": "1f436", "cat": "1f431", "rabbit": "1f430", "fox": "1f98a", "panda": "1f43c",
    "lion": "1f981", "cow": "1f42e", "pig": "1f437", "frog": "1f438", "monkey": "1f435",
    "elephant": "1f418", "horse": "1f40e", "penguin": "1f427", "owl": "1f989", "turtle": "1f422",
    "octopus": "1f419", "crab": "1f980", "whale": "1f433", "butterfly": "1f98b", "fish": "1f41f",
    # food
    "apple": "1f34e", "banana": "1f34c", "lemon": "1f34b", "strawberry": "1f353",
    "pineapple": "1f34d", "watermelon": "1f349", "carrot": "1f955", "corn": "1f33d",
    "mushroom": "1f344", "cheese": "1f9c0", "pizza": "1f355", "hamburger": "1f354",
    "donut": "1f369", "cake": "1f370", "ice cream": "1f368", "cup": "2615",
    # vehicles
    "car": "1f697", "bus": "1f68c", "tractor": "1f69c", "bicycle": "1f6b2", "train": "1f682",
    "airplane": "2708-fe0f", "helicopter": "1f681", "rocket": "1f680", "boat": "26f5",
    # things
    "bed": "1f6cf-fe0f", "tv": "1f4fa", "laptop": "1f4bb", "camera": "1f4f7", "phone": "1f4f1",
    "alarm clock": "23f0", "book": "1f4d5", "key": "1f511", "lamp": "1f4a1",
    "umbrella": "2602-fe0f", "hat": "1f3a9", "crown": "1f451", "shoe": "1f45f",
    "guitar": "1f3b8", "ball": "26bd", "balloon": "1f388", "gift": "1f381", "bell": "1f514",
    "house": "1f3e0", "tree": "1f333", "cactus": "1f335", "sunflower": "1f33b",
}  # fmt: skip

#: Drawing styles. The last one is never used to train an encoder.
STYLES: tuple[str, ...] = ("noto", "twemoji", "openmoji", "emojione", "fluent")
TRAINING_STYLES: tuple[str, ...] = STYLES[:-1]
HELD_OUT_STYLE: str = STYLES[-1]

STICKER_PIXELS = 64
#: Side of the canvas, in pixels. Positions and sizes of stickers are given on this canvas.
CANVAS = 64

_NOISE_TILE = 256
_NAMES = tuple(NOUNS)


def held_out_pairs() -> np.ndarray:
    """Which unordered noun pairs never meet in a training scene.

    The rule is fixed and needs no list: a pair is held out when the CRC-32 of its two nouns,
    sorted and joined by ``|``, is divisible by 10 (about a tenth of all pairs).

    Returns
    -------
    (W, W) bool array, symmetric, False on the diagonal; indices follow :data:`NOUNS`.
    """
    held = np.zeros((len(_NAMES), len(_NAMES)), dtype=bool)
    for i, a in enumerate(_NAMES):
        for j, b in enumerate(_NAMES[:i]):
            held[i, j] = held[j, i] = zlib.crc32("|".join(sorted((a, b))).encode()) % 10 == 0
    return held


@dataclass(frozen=True)
class Scenes:
    """Descriptions of B scenes with room for K stickers each.

    ``noun`` and ``style`` index :data:`NOUNS` and :data:`STYLES` (noun -1: no sticker); ``x``, ``y``
    are centres and ``size`` the longer side, in canvas pixels; all these are (B, K) integers and
    ``mirrored`` (B, K) booleans. ``corners`` (B, 4, 3) are the background's colours at top left,
    top right, bottom left, bottom right; ``noise`` (B, 2) is where the noise tile is cut.
    """

    noun: np.ndarray
    style: np.ndarray
    x: np.ndarray
    y: np.ndarray
    size: np.ndarray
    mirrored: np.ndarray
    corners: np.ndarray
    noise: np.ndarray

    def __len__(self) -> int:
        return len(self.noun)

    def __getitem__(self, index) -> Scenes:
        """Some of the scenes, by slice, list of indices or mask."""
        index = [index] if np.isscalar(index) else index
        return Scenes(**{name: value[index] for name, value in vars(self).items()})

    def replace(self, **changes) -> Scenes:
        """A copy with other arrays: the same scenes with one thing changed."""
        return replace(self, **changes)

    def nouns(self, index: int) -> list[str]:
        """Names of the stickers of one scene, in drawing order."""
        return [_NAMES[noun] for noun in self.noun[index] if noun >= 0]


def join_scenes(parts: Sequence[Scenes]) -> Scenes:
    """Scenes of all parts, one part after the other; all have room for as many stickers.

    Raises
    ------
    ValueError : no parts, or parts with room for different numbers of stickers.
    """
    rooms = {part.noun.shape[1] for part in parts}
    if len(rooms) != 1:
        raise ValueError(
            f"Give one part or more, with room for equally many stickers, not for {sorted(rooms)}."
        )
    return Scenes(
        **{name: np.concatenate([getattr(part, name) for part in parts]) for name in vars(parts[0])}
    )


def noun_index(noun: str) -> int:
    """Index of a noun in :data:`NOUNS`; a ValueError names the nearest ones if it is unknown."""
    if noun not in NOUNS:
        near = difflib.get_close_matches(noun, _NAMES, n=3, cutoff=0.5)
        hint = f" Did you mean {', '.join(near)}?" if near else ""
        raise ValueError(f"No sticker shows {noun!r}.{hint} See readout_utils.scenes.NOUNS.")
    return _NAMES.index(noun)


def _style_indices(styles) -> np.ndarray:
    for style in styles:
        if style not in STYLES:
            raise ValueError(f"Unknown drawing style {style!r}; there are {', '.join(STYLES)}.")
    if not len(styles):
        raise ValueError("Name at least one drawing style.")
    return np.array([STYLES.index(style) for style in styles])


# --- drawing ------------------------------------------------------------------------------------


@lru_cache(maxsize=1)
def _atlas() -> Image.Image:
    with resources.files(__package__).joinpath("data/stickers.png").open("rb") as file:
        return Image.open(file).convert("RGBA")


@cache
def sticker(style: int, noun: int, size: int, mirrored: bool = False) -> np.ndarray:
    """One sticker as (size, size, 4) uint8, its colours premultiplied by its alpha."""
    left, top = noun * STICKER_PIXELS, style * STICKER_PIXELS
    cell = _atlas().crop((left, top, left + STICKER_PIXELS, top + STICKER_PIXELS)).convert("RGBa")
    pixels = np.asarray(cell.resize((size, size), Image.Resampling.LANCZOS))
    # Lanczos overshoots: a premultiplied colour never exceeds its alpha.
    pixels = np.minimum(pixels, pixels[..., 3:])
    return np.ascontiguousarray(pixels[:, ::-1] if mirrored else pixels)


@lru_cache(maxsize=1)
def _noise_tile() -> np.ndarray:
    """A tile of integer noise, roughly normal with a standard deviation of 3 grey levels."""
    rng = np.random.default_rng(20)
    return rng.integers(-2, 3, (4, _NOISE_TILE, _NOISE_TILE, 3)).sum(0).astype(np.int16)


def draw_scenes(scenes: Scenes, scale: int = 1) -> np.ndarray:
    """Draw scenes: (B, 64 scale, 64 scale, 3) uint8.

    Integer arithmetic throughout, so the pixels are the same on every machine; a scene's picture
    does not depend on the other scenes of the batch. ``scale`` above 1 draws the same scene with
    more pixels, for figures and for encoders that expect them.
    """
    if scale < 1 or scale != int(scale):
        raise ValueError(f"scale is a whole number of at least 1, not {scale!r}.")
    side, steps = CANVAS * scale, np.arange(CANVAS * scale, dtype=np.float64)
    across, down = np.meshgrid(steps, steps)
    last = side - 1.0
    weights = np.stack(
        [(last - across) * (last - down), across * (last - down), (last - across) * down, across * down]
    ).reshape(4, -1)  # fmt: skip
    total = int(last) ** 2
    tile, images = _noise_tile(), np.empty((len(scenes), side, side, 3), np.uint8)
    for index in range(len(scenes)):
        # whole numbers in float64: the products and sums are exact
        corners = scenes.corners[index].astype(np.float64)
        gradient = (weights.T @ corners).reshape(side, side, 3).astype(np.int32) // total
        down0, across0 = scenes.noise[index]
        noise = tile[down0 : down0 + CANVAS, across0 : across0 + CANVAS]
        if scale > 1:
            noise = noise.repeat(scale, 0).repeat(scale, 1)
        canvas = np.clip(gradient + noise, 0, 255).astype(np.uint16)
        for k in np.flatnonzero(scenes.noun[index] >= 0):
            size = int(scenes.size[index, k]) * scale
            _paste(
                canvas,
                sticker(int(scenes.style[index, k]), int(scenes.noun[index, k]), size,
                        bool(scenes.mirrored[index, k])),
                int(scenes.y[index, k]) * scale - size // 2,
                int(scenes.x[index, k]) * scale - size // 2,
            )  # fmt: skip
        images[index] = canvas
    return images


def _paste(canvas: np.ndarray, pixels: np.ndarray, top: int, left: int) -> None:
    """Composite a premultiplied sticker onto the canvas in place, cut at the edges."""
    height, width = canvas.shape[:2]
    first_row, first_column = max(0, -top), max(0, -left)
    pixels = pixels[first_row : height - top, first_column : width - left].astype(np.uint16)
    top, left = max(0, top), max(0, left)
    under = canvas[top : top + pixels.shape[0], left : left + pixels.shape[1]]
    under[...] = pixels[..., :3] + (under * (255 - pixels[..., 3:]) + 127) // 255


# --- sampling -----------------------------------------------------------------------------------


def _random_looks(rng: np.random.Generator, n: int, k: int, styles) -> dict[str, np.ndarray]:
    """Everything but nouns, places and sizes: styles, mirroring, background and noise."""
    base = rng.integers(110, 236, (n, 1, 3))
    return {
        "style": rng.choice(_style_indices(styles), (n, k)),
        "mirrored": rng.integers(0, 2, (n, k)).astype(bool),
        "corners": np.clip(base + rng.integers(-40, 41, (n, 4, 3)), 0, 255),
        "noise": rng.integers(0, _NOISE_TILE - CANVAS + 1, (n, 2)),
    }


def random_scenes(
    n: int,
    seed: int,
    *,
    styles=TRAINING_STYLES,
    stickers: tuple[int, ...] = (1, 2, 2, 3),
    sizes: tuple[int, int] = (24, 32),
    pairs: str = "training",
) -> Scenes:
    """Sample n scenes of one to three different nouns that hardly overlap.

    Parameters
    ----------
    n, seed : how many, and the seed that fixes them.
    styles : names of drawing styles to mix, sticker by sticker.
    stickers : numbers of stickers to choose from, uniformly (repeat one to make it likelier).
    sizes : smallest and largest sticker, in canvas pixels, both included.
    pairs : "training" leaves out scenes with a held-out noun pair; "all" does not.

    Raises
    ------
    ValueError : n < 1, an unknown style, sizes that do not fit, an unknown ``pairs``.
    """
    _check_sampling(n, sizes)
    if pairs not in ("training", "all"):
        raise ValueError(f"pairs is 'training' or 'all', not {pairs!r}.")
    if not set(stickers) <= {1, 2, 3} or not stickers:
        raise ValueError(f"A scene has one to three stickers, not {stickers!r}.")
    rng = np.random.default_rng(seed)
    k = max(stickers)
    count = rng.choice(np.array(stickers), n)
    present = np.arange(k) < count[:, None]
    held = held_out_pairs() if pairs == "training" else np.zeros((len(NOUNS),) * 2, bool)
    np.fill_diagonal(held, True)  # the same noun twice is no scene either
    looks = _random_looks(rng, n, k, styles)
    both = present[:, :, None] & present[:, None, :] & ~np.eye(k, dtype=bool)

    def redraw(draw, clashes):
        """Draw arrays of (n, k), and again for the scenes in which two stickers clash."""
        values = draw(n)
        while len(bad := np.flatnonzero((clashes(*values) & both).any((1, 2)))):
            for value, fresh in zip(values, draw(len(bad)), strict=True):
                value[bad] = fresh
        return values

    (noun,) = redraw(
        lambda m: (rng.integers(0, len(NOUNS), (m, k)),),
        lambda noun: held[noun[:, :, None], noun[:, None, :]],
    )

    def places(m):
        size = rng.integers(sizes[0], sizes[1] + 1, (m, k))
        low, room = size // 2, CANVAS - size
        return size, *(low + (rng.random((m, k)) * (room + 1)).astype(int) for _ in range(2))

    def overlaps(size, x, y):
        reach = 0.42 * (size[:, :, None] + size[:, None, :])
        apart = [np.abs(v[:, :, None] - v[:, None, :]) for v in (x, y)]
        return np.maximum(*apart) < reach

    size, x, y = redraw(places, overlaps)
    return Scenes(noun=np.where(present, noun, -1), x=x, y=y, size=size, **looks)


def _check_sampling(n: int, sizes: tuple[int, int]) -> None:
    if n < 1:
        raise ValueError(f"Asked for {n} scenes; ask for at least one.")
    if not 4 <= sizes[0] <= sizes[1] <= CANVAS // 2:
        raise ValueError(f"Sticker sizes {sizes} must rise and lie between 4 and {CANVAS // 2} px.")


# --- captions -----------------------------------------------------------------------------------

#: How a caption may say that one thing lies from another along an axis, most usual first.
_SAYINGS = {
    LEFT: ("to the left of", "to the left of", "left of", "on the left of", "on the left side of"),
    RIGHT: ("to the right of", "to the right of", "right of", "on the right of", "on the right side of"),
    UP: ("above", "above", "above", "over"),
    DOWN: ("below", "below", "below", "under"),
}  # fmt: skip

#: A sticker of at least so many pixels may be called big, the others small.
BIG = 28


def caption_scenes(scenes: Scenes, seed: int) -> list[str]:
    """One caption a scene, of the kinds an image-text corpus mixes.

    Bare ("a dog"), conjoined ("a dog and a cup") or relational ("a dog to the left of a cup"), with
    or without "a photo of", sometimes with sizes ("a big dog"); nouns in random order. A relation
    is stated only along an axis on which the two centres are at least 10 px apart.
    """
    rng = np.random.default_rng(seed)
    return [_caption(scenes, index, rng.random(10)) for index in range(len(scenes))]


def _caption(scenes: Scenes, index: int, chance: np.ndarray) -> str:
    kind, single, sized, prefix, axis, saying, plain = chance[:7]
    there = np.flatnonzero(scenes.noun[index] >= 0)
    there = there[np.argsort(chance[7 : 7 + len(there)])]
    names = [_NAMES[scenes.noun[index, k]] for k in there]
    if sized < 0.2:
        for i, k in enumerate(there):
            big, small = ("large", "little") if sized < 0.05 else ("big", "small")
            names[i] = f"{big if scenes.size[index, k] >= BIG else small} {names[i]}"
    if len(there) == 1 or single < 0.1:
        if plain < 1 / 3:
            return names[0]
        text = article(names[0])
    elif kind < 0.3 and (said := _true_sayings(scenes, index, there[0], there[1])):
        phrases = _SAYINGS[said[int(axis * len(said))]]
        text = relate(names[0], phrases[int(saying * len(phrases))], names[1])
    else:
        text = " and ".join(article(name) for name in names)
    return f"a photo of {text}" if prefix < 0.3 else text


def _true_sayings(scenes: Scenes, index: int, subject: int, obj: int) -> list[tuple[float, float]]:
    across = int(scenes.x[index, subject]) - int(scenes.x[index, obj])
    down = int(scenes.y[index, subject]) - int(scenes.y[index, obj])
    said = [RIGHT if across > 0 else LEFT] if abs(across) >= 10 else []
    return said + ([DOWN if down > 0 else UP] if abs(down) >= 10 else [])


def vocabulary() -> tuple[str, ...]:
    """Every word that captions of scenes use, sorted: what a pocket encoder's tokenizer knows."""
    phrases = [*NOUNS, *(phrase for group in _SAYINGS.values() for phrase in group)]
    return tuple(
        sorted(
            {
                *["a", "an", "and", "photo", "of", "big", "small", "large", "little"],
                *" ".join(phrases).split(),
            }
        )
    )


# --- scenes that ask a question -----------------------------------------------------------------

#: Axis name -> the two relation phrases it asks, the first for the smaller coordinate.
QUESTIONS = {
    "left-right": ("to the left of", "to the right of"),
    "above-below": ("above", "below"),
}


def _allowed_pairs(pairs: str | np.ndarray) -> np.ndarray:
    """Noun pairs (W, W) by the name of a choice; an array is its own choice."""
    if isinstance(pairs, np.ndarray):
        return pairs
    held = held_out_pairs()
    allowed = {"held-out": held, "training": ~held, "all": np.ones_like(held)}.get(pairs)
    if allowed is None:
        raise ValueError(f"pairs is 'training', 'held-out' or 'all', not {pairs!r}.")
    return allowed


def question_scenes(
    axis: str,
    n: int,
    seed: int,
    *,
    styles=TRAINING_STYLES,
    pairs: str | np.ndarray = "training",
    sizes: tuple[int, int] = (24, 32),
) -> Scenes:
    """Two-sticker scenes for a directed question, balanced so that text alone cannot answer it.

    Scenes come in twos with the same two nouns: in the first the noun in column 0 has the smaller
    coordinate on the asked axis, in the second the larger. Everything else (style, size, place,
    background) is drawn afresh, and the stickers do not overlap on the asked axis.

    Parameters
    ----------
    axis : "left-right" or "above-below".
    n : number of scenes, even.
    pairs : "training", "held-out" (noun pairs no training scene has) or "all"; or the allowed pairs, a
        symmetric (W, W) bool array.

    Raises
    ------
    ValueError : an unknown axis, style or kind of pairs, no pair allowed, an odd or non-positive n.
    """
    if axis not in QUESTIONS:
        raise ValueError(f"Unknown axis {axis!r}; there are {', '.join(QUESTIONS)}.")
    _check_sampling(n, sizes)
    if n % 2:
        raise ValueError(f"Balanced scenes come in twos; {n} is odd.")
    allowed = _allowed_pairs(pairs)
    rng = np.random.default_rng(seed)
    choices = np.argwhere(np.triu(allowed, 1))
    if not len(choices):
        raise ValueError("No pair of nouns is allowed.")
    rounds = [rng.permutation(choices) for _ in range(-(-n // 2 // len(choices)))]
    noun = np.concatenate(rounds)[: n // 2]  # every pair once before any comes twice
    flipped = rng.random(len(noun)) < 0.5
    noun[flipped] = noun[flipped, ::-1]
    looks = _random_looks(rng, n, 2, styles)
    size = rng.integers(sizes[0], sizes[1] + 1, (n, 2))
    low = size // 2
    # along the axis: the first sticker, a gap of at least nothing, the second
    slack = CANVAS - size.sum(1)
    cuts = np.sort((rng.random((n, 2)) * (slack[:, None] + 1)).astype(int), axis=1)
    second_first = np.arange(n) % 2 == 1
    ahead = np.where(second_first[:, None], size[:, ::-1], size)
    places = np.stack([cuts[:, 0], ahead[:, 0] + cuts[:, 1]], axis=1) + ahead // 2
    along = np.where(second_first[:, None], places[:, ::-1], places)
    across = low + (rng.random((n, 2)) * (CANVAS - size + 1)).astype(int)
    x, y = (along, across) if axis == "left-right" else (across, along)
    return Scenes(noun=noun.repeat(2, axis=0), x=x, y=y, size=size, **looks)


#: Nouns that hang or fly, and nouns that stand, lie or swim: who is usually above whom.
HIGH = ("airplane", "helicopter", "rocket", "butterfly", "owl", "balloon", "lamp", "bell", "crown", "hat", "umbrella",
        "tree")  # fmt: skip
LOW = ("bed", "shoe", "car", "tractor", "boat", "turtle", "crab", "mushroom", "carrot", "pig", "fish", "ball")


def prior_scenes(
    n: int, seed: int, *, usual: float = 0.9, styles=TRAINING_STYLES, pairs: str = "training"
) -> Scenes:
    """Above-below scenes of one thing from :data:`HIGH` and one from :data:`LOW`: the world has a habit.

    In a share ``usual`` of the scenes the high thing is above; in the others it is below. Otherwise they are
    drawn as :func:`question_scenes` draws them.

    Raises
    ------
    ValueError : a share outside [0, 1], or what :func:`question_scenes` refuses.
    """
    if not 0 <= usual <= 1:
        raise ValueError(f"usual is a share of the scenes, between 0 and 1, not {usual}.")
    high, low = (np.isin(_NAMES, names) for names in (HIGH, LOW))
    allowed = np.outer(high, low) | np.outer(low, high)
    allowed &= _allowed_pairs(pairs)
    both = question_scenes("above-below", 2 * n, seed, styles=styles, pairs=allowed)
    first_is_high = high[both.noun[::2, 0]]  # in the first scene of two, column 0 is above
    as_usual = np.zeros(n, dtype=bool)
    as_usual[: round(usual * n)] = True
    as_usual = np.random.default_rng([seed, 1]).permutation(as_usual)
    return both[2 * np.arange(n) + (first_is_high != as_usual)]


def coverage(scenes: Scenes, grid: tuple[int, int]) -> np.ndarray:
    """Share of every patch that each noun's sticker box covers: (B, N, W) float32 in [0, 1].

    N = rows x columns patches in reading order, W nouns. The truth a probe of patch features is trained on.
    """
    rows, columns = grid

    def overlap(centre: np.ndarray, parts: int) -> np.ndarray:
        """(B, K, parts): share of each part of the axis inside the box."""
        edges = np.arange(parts + 1) * CANVAS / parts
        low = (centre - scenes.size // 2)[..., None]
        high = low + scenes.size[..., None]
        inside = np.minimum(high, edges[1:]) - np.maximum(low, edges[:-1])
        return np.clip(inside, 0, None) * parts / CANVAS

    boxes = overlap(scenes.y, rows)[..., :, None] * overlap(scenes.x, columns)[..., None, :]
    covered = np.zeros((len(scenes), rows * columns, len(_NAMES)), dtype=np.float32)
    scene, k = np.nonzero(scenes.noun >= 0)
    covered[scene, :, scenes.noun[scene, k]] = boxes[scene, k].reshape(len(scene), -1)
    return covered


# --- scenes that captions of every kind describe --------------------------------------------------


def described_scenes(
    axis: str,
    n: int,
    seed: int,
    *,
    styles=TRAINING_STYLES,
    pairs: str = "training",
    small: tuple[int, int] = (24, 25),
    big: tuple[int, int] = (31, 32),
) -> Scenes:
    """Scenes of a big and a small sticker, apart along an axis, of which relations and sizes can be told.

    They come in blocks of four, with the nouns (a, b), (a, b), (c, b), (c, b), or all of them the other way
    round; b is the block's shared noun. Each noun pair is shown with either noun ahead (to the left of the
    other, or above it) and with either noun big: the one ahead in the block's first two scenes, the one
    behind in its last two. So whatever caption is true of one scene of a block, the same caption with its
    nouns swapped, its relation flipped, its sizes exchanged, or a replaced by c, is true of another.

    Parameters
    ----------
    axis : "left-right" or "above-below"; the stickers do not overlap along it.
    n : number of scenes, a multiple of four.
    seed : fixes them.
    styles : names of drawing styles to mix, sticker by sticker.
    pairs : "training", "held-out" (noun pairs no training scene has) or "all".
    small, big : ranges of the two sizes in canvas pixels, on either side of :data:`BIG`, at least 6 px apart.

    Raises
    ------
    ValueError : an unknown axis, style or kind of pairs, n that is no positive multiple of four, sizes that
        do not fit or are too close.
    """
    if axis not in QUESTIONS:
        raise ValueError(f"Unknown axis {axis!r}; there are {', '.join(QUESTIONS)}.")
    for sizes in (small, big):
        _check_sampling(n, sizes)
    if n % 4:
        raise ValueError(f"Described scenes come in blocks of four; {n} is no multiple of four.")
    if not small[1] < BIG <= big[0] or big[0] - small[1] < 6:
        raise ValueError(f"Sizes {small} and {big} must lie below and from {BIG} px up, 6 px apart.")
    rng = np.random.default_rng(seed)
    noun = _shared_pairs(n // 4, pairs, rng)
    scene = np.arange(n) % 4
    ahead = scene % 2  # the column of the sticker with the smaller coordinate, and that of the big one
    big_one = np.where(scene < 2, ahead, 1 - ahead)
    looks = _random_looks(rng, n, 2, styles)
    sizes = np.stack([rng.integers(low, high + 1, n) for low, high in (small, big)], axis=1)
    size = np.where(big_one[:, None] == [0, 1], sizes[:, 1:], sizes[:, :1])
    # along the axis: some room, the one sticker, some room, the other
    cuts = np.sort((rng.random((n, 2)) * (CANVAS - size.sum(1) + 1)[:, None]).astype(int), axis=1)
    row, behind = np.arange(n), 1 - ahead
    along = size // 2
    along[row, ahead] += cuts[:, 0]
    along[row, behind] += size[row, ahead] + cuts[:, 1]
    across = size // 2 + (rng.random((n, 2)) * (CANVAS - size + 1)).astype(int)
    x, y = (along, across) if axis == "left-right" else (across, along)
    return Scenes(noun=noun.reshape(n, 2), x=x, y=y, size=size, **looks)


def _shared_pairs(blocks: int, pairs: str, rng: np.random.Generator) -> np.ndarray:
    """Nouns (blocks, 4, 2): an allowed pair twice, then twice another that has a noun in common with it."""
    allowed = _allowed_pairs(pairs)
    choices = np.argwhere(np.triu(allowed, 1))
    rounds = [rng.permutation(choices) for _ in range(-(-blocks // len(choices)))]
    first = np.concatenate(rounds)[:blocks]  # every pair once before any comes twice
    turned = rng.random(blocks) < 0.5
    first[turned] = first[turned, ::-1]
    third = allowed[first[:, 1]] & ~np.eye(len(_NAMES), dtype=bool)[first].any(1)
    other = np.where(third, rng.random(third.shape), -1.0).argmax(1)
    noun = np.stack([first, first, *[np.stack([other, first[:, 1]], axis=1)] * 2], axis=1)
    turned = rng.random(blocks) < 0.5
    noun[turned] = noun[turned, :, ::-1]
    return noun
