"""The binding task: does an embedding say which shape is where, in colours it was not probed on?

Two flat shapes on a light canvas. *Binding* asks which of the two kinds is at which of the two places,
*same/different* whether the two are of one kind, and *shapes* only which kinds there are, wherever they are:
an encoder that fails the first and passes the last sees the shapes and does not bind them. Colours of test
scenes are disjoint from those of training scenes, so that no colour helps, and scenes come in fours that
cross what must not tell the answer.

Chung and Kim (2026) describe a binding and a same/different task; their rendering, sizes and probe were not
found, and these are our own. Scenes are described by integers and drawn in integer arithmetic: the same on
every machine.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import asdict, dataclass
from functools import cache

import numpy as np
import pandas as pd
from scipy.stats import binomtest
from sklearn.linear_model import LogisticRegression
from sklearn.model_selection import GridSearchCV, GroupKFold
from sklearn.preprocessing import StandardScaler
from torch import Tensor

from .deflation import bootstrap_interval
from .scenes import CANVAS

#: Kinds of shapes; the label of the binding task goes by their order.
KINDS = ("circle", "square", "triangle", "diamond", "cross", "star", "ring", "moon")

#: Colours (red, green, blue) of training and of test scenes: the two sets alternate around the hue circle.
COLORS: dict[str, dict[str, tuple[int, int, int]]] = {
    "train": {
        "red": (214, 40, 40), "yellow": (230, 200, 40), "green": (40, 160, 60),
        "cyan": (40, 190, 200), "blue": (50, 80, 210), "magenta": (200, 60, 190),
    },
    "test": {
        "orange": (235, 130, 30), "lime": (150, 200, 40), "teal": (30, 150, 130),
        "azure": (60, 150, 230), "violet": (120, 60, 200), "pink": (235, 110, 150),
    },
}  # fmt: skip

#: Centres (x, y) of the places two shapes may take, in reading order.
PLACES: dict[str, tuple[tuple[int, int], ...]] = {
    "left-right": ((16, 32), (48, 32)),
    "four": ((16, 16), (48, 16), (16, 48), (48, 48)),
}

TASKS = ("binding", "same-different", "shapes")

#: Inverse strengths of the probe's L2 penalty that cross-validation chooses from.
STRENGTHS = (1e-4, 1e-3, 1e-2, 1e-1, 1.0, 10.0, 100.0)

_RADII = (10, 13)
_JITTER = 3  # a shape of the largest radius stays within its quarter of the canvas
_FINE = 4  # each pixel's coverage is counted on 4 x 4 points


@dataclass(frozen=True)
class BindingScenes:
    """Descriptions of n scenes with two shapes each.

    ``kind`` indexes :data:`KINDS`; ``place`` the places, ``place[:, 0]`` the earlier in reading order;
    ``x``, ``y`` are centres and ``radius`` half the extent, in canvas pixels; all these are (n, 2) integers.
    ``color`` (n, 2, 3) are the shapes' colours, ``background`` (n,) the grey behind them. ``label`` (n,) is
    0 or 1. ``group`` (n,) tells which four scenes were made together.
    """

    kind: np.ndarray
    place: np.ndarray
    x: np.ndarray
    y: np.ndarray
    radius: np.ndarray
    color: np.ndarray
    background: np.ndarray
    label: np.ndarray
    group: np.ndarray

    def __len__(self) -> int:
        return len(self.label)

    def __getitem__(self, index) -> BindingScenes:
        """Some of the scenes, by slice, list of indices or mask."""
        index = [index] if np.isscalar(index) else index
        return BindingScenes(**{name: value[index] for name, value in vars(self).items()})


def binding_scenes(
    n: int,
    seed: int,
    colors: str = "train",
    *,
    task: str = "binding",
    places: str = "left-right",
    shortcut: bool = False,
) -> BindingScenes:
    """Sample n scenes whose label nothing but shape and place together can tell.

    Scenes come in fours with the same two places, centres, sizes and grey. For ``"binding"`` the four
    cross which of two kinds is at which place with which of two colours is; the label is 1 if the kind that
    comes first in :data:`KINDS` is at the place that comes first in reading order. For
    ``"same-different"`` the four are both kinds twice and the two in either order, in the same two colours;
    the label is 1 if both are of one kind. For ``"shapes"`` they are two kinds of the first half of
    :data:`KINDS` in either order (label 1) and two of the other half (label 0), in the same two colours. So
    no colour and no place ever tells the label, no set of kinds tells a binding, and no kind at one place
    alone tells same from different. A probe of anything that binding does not show in is right about exactly
    half of each four.

    Parameters
    ----------
    n, seed : how many, a multiple of 4, and the seed that fixes them.
    colors : ``"train"`` or ``"test"``, two disjoint sets of colours. The two shapes never share a colour.
    task : ``"binding"``, ``"same-different"`` or ``"shapes"``.
    places : ``"left-right"``, or ``"four"``: two of the canvas's quarters.
    shortcut : let colours give the label away instead: with label 1 the first place has one of the
        first half of the colours and the second place one of the other half, with label 0 the reverse.

    Raises
    ------
    ValueError : n that is no positive multiple of 4, unknown colours, task or places.
    """
    for value, known, what in (
        (colors, COLORS, "colours"), (task, TASKS, "task"), (places, PLACES, "places"),
    ):  # fmt: skip
        if value not in known:
            raise ValueError(f"Unknown {what} {value!r}; there are {', '.join(known)}.")
    if n < 4 or n % 4:
        raise ValueError(f"Balanced scenes come in fours; {n} is no positive multiple of 4.")
    rng, groups = np.random.default_rng(seed), n // 4
    centres, palette = np.array(PLACES[places]), np.array(list(COLORS[colors].values()))

    def two_of(count: int, size: int) -> np.ndarray:
        """(size, 2) different indices below ``count``."""
        first = rng.integers(0, count, size)
        return np.stack([first, (first + rng.integers(1, count, size)) % count], axis=1)

    kind, color = two_of(len(KINDS), groups), two_of(len(palette), groups)
    place = np.sort(two_of(len(centres), groups), axis=1)
    centre = centres[place] + rng.integers(-_JITTER, _JITTER + 1, (groups, 2, 2))
    if places == "left-right":  # there is room above and below
        centre[..., 1] += rng.integers(-3, 4, (groups, 2))
    radius = rng.integers(_RADII[0], _RADII[1] + 1, (groups, 2))
    # lighter than every colour, so that contrast has one sign in training and test colours alike
    background = rng.integers(200, 237, groups)
    swapped = kind[:, ::-1], color[:, ::-1]
    if task == "binding":
        four_kinds, four_colors = [kind, swapped[0]] * 2, [color, color, swapped[1], swapped[1]]
    elif task == "same-different":
        four_kinds, four_colors = [kind[:, [0, 0]], kind[:, [1, 1]], kind, swapped[0]], [color] * 4
    else:
        early, late = two_of(half := len(KINDS) // 2, groups), two_of(half, groups) + half
        four_kinds, four_colors = [early, early[:, ::-1], late, late[:, ::-1]], [color] * 4
    kind, color = (np.stack(four, axis=1).reshape(n, 2) for four in (four_kinds, four_colors))
    label = {
        "binding": kind[:, 0] < kind[:, 1],
        "same-different": kind[:, 0] == kind[:, 1],
        "shapes": kind[:, 0] < len(KINDS) // 2,
    }[task]
    if shortcut:
        half = len(palette) // 2
        color = rng.integers(0, half, (n, 2)) + half * np.stack([~label, label], axis=1)
    scenes = BindingScenes(
        kind=kind,
        place=place.repeat(4, axis=0),
        x=centre[..., 0].repeat(4, axis=0),
        y=centre[..., 1].repeat(4, axis=0),
        radius=radius.repeat(4, axis=0),
        color=palette[color],
        background=background.repeat(4),
        label=label.astype(int),
        group=np.arange(groups).repeat(4),
    )
    # no label may go by the order of scenes either
    return scenes[(rng.random((groups, 4)).argsort(1) + 4 * np.arange(groups)[:, None]).ravel()]


@cache
def shape_coverage(kind: str, radius: int) -> np.ndarray:
    """Sixteenths of each pixel that a shape covers: (2 radius, 2 radius) integers from 0 to 16.

    Raises
    ------
    ValueError : an unknown kind, a radius below 1.
    """
    if kind not in KINDS:
        raise ValueError(f"Unknown shape {kind!r}; there are {', '.join(KINDS)}.")
    if radius < 1:
        raise ValueError(f"A radius is at least 1 pixel, not {radius}.")
    r = 2 * _FINE * radius  # in eighths of a pixel, so that the middles of the fine points are whole numbers
    u, v = np.meshgrid(*[np.arange(1 - r, r, 2)] * 2)  # to the right and down from the centre
    squared, wide, high = u**2 + v**2, np.abs(u), np.abs(v)
    disc = squared <= r**2
    inside = {
        "circle": disc,
        "square": 8 * np.maximum(wide, high) <= 7 * r,
        "triangle": 2 * wide <= v + r,
        "diamond": wide + high <= r,
        "cross": 3 * np.minimum(wide, high) <= r,
        # two triangles, point up and point down; 7 : 4 for the square root of 3
        "star": ((7 * wide <= 4 * (r + v)) & (2 * v <= r)) | ((7 * wide <= 4 * (r - v)) & (-2 * v <= r)),
        "ring": disc & (81 * squared >= 25 * r**2),
        "moon": disc & (4 * (2 * u - r) ** 2 + 16 * v**2 >= 9 * r**2),
    }[kind]
    side = 2 * radius
    return inside.reshape(side, _FINE, side, _FINE).sum((1, 3))


def draw_binding_scenes(scenes: BindingScenes) -> np.ndarray:
    """Draw scenes: (n, 64, 64, 3) uint8, in integer arithmetic."""
    images = np.empty((len(scenes), CANVAS, CANVAS, 3), np.int32)
    images[:] = scenes.background[:, None, None, None]
    for index, image in enumerate(images):
        for k in range(2):
            radius = int(scenes.radius[index, k])
            cover = shape_coverage(KINDS[scenes.kind[index, k]], radius)[..., None]
            top, left = int(scenes.y[index, k]) - radius, int(scenes.x[index, k]) - radius
            under = image[top : top + 2 * radius, left : left + 2 * radius]
            under[...] = (under * (16 - cover) + scenes.color[index, k] * cover + 8) // 16
    return images.astype(np.uint8)


def true_factors(scenes: BindingScenes, task: str = "binding") -> np.ndarray:
    """What an ideal embedding would hold, for the ceiling of a linear probe: (n, F) of zeros and ones.

    Which kind is at the first and which at the second place, 16 columns; for same-different one column for
    each ordered pair of kinds, 64, since the 16 do not tell it linearly.

    Raises
    ------
    ValueError : an unknown task.
    """
    if task not in TASKS:
        raise ValueError(f"Unknown task {task!r}; there are {', '.join(TASKS)}.")
    first, second = (np.eye(len(KINDS))[scenes.kind[:, k]] for k in range(2))
    if task == "same-different":
        return (first[:, :, None] * second[:, None]).reshape(len(scenes), -1)
    return np.concatenate([first, second], axis=1)


def color_features(scenes: BindingScenes) -> np.ndarray:
    """The colours at the first and the second place, and nothing else: (n, 6) in [0, 1]."""
    return scenes.color.reshape(len(scenes), 6) / 255


# --- the probe ------------------------------------------------------------------------------------


@dataclass(frozen=True)
class BindingScore:
    """A probe's accuracy on n test scenes.

    ``low`` and ``high`` bound its 95 % interval, ``chance`` is the share of the most frequent test label, and
    ``strength`` the inverse strength of the penalty that cross-validation chose.
    """

    accuracy: float
    low: float
    high: float
    chance: float
    strength: float
    n: int


def binding_accuracy(
    train,
    train_labels,
    test,
    test_labels,
    *,
    train_groups=None,
    test_groups=None,
    strengths: tuple[float, ...] = STRENGTHS,
    folds: int = 5,
    seed: int = 0,
) -> BindingScore:
    """Accuracy of a linear probe: trained on one set of embeddings, asked about another.

    Logistic regression with an L2 penalty on standardised embeddings (mean and deviation of the training
    ones); the penalty's strength is the one that does best in cross-validation on the training set, the
    strongest of equals.

    Parameters
    ----------
    train, test : (n, D) and (m, D) embeddings.
    train_labels, test_labels : (n,) and (m,) of two or more classes.
    train_groups, test_groups : (n,) and (m,) which scenes were made together. A group stays in one fold of
        the cross-validation, and is drawn whole by the bootstrap behind the interval; without, each scene is
        its own group. An accuracy of exactly 0 or 1 has the exact binomial interval over groups instead,
        because resampling cannot vary it.
    strengths : inverse strengths (scikit-learn's C) to choose from.
    folds : of the cross-validation.
    seed : of the bootstrap.

    Raises
    ------
    ValueError : shapes that do not fit, NaN or infinity, one class only, fewer groups than folds,
        strengths that are not positive.
    """
    train, train_labels, train_groups = _checked_set(train, train_labels, train_groups, "training")
    test, test_labels, test_groups = _checked_set(test, test_labels, test_groups, "test")
    if train.shape[1] != test.shape[1]:
        raise ValueError(
            f"Training embeddings have {train.shape[1]} dimensions and test ones {test.shape[1]}."
        )
    if len(np.unique(train_labels)) < 2:
        raise ValueError("The training labels are all the same; a probe needs two classes.")
    if not len(strengths) or not all(0 < strength < np.inf for strength in strengths):
        raise ValueError(f"Strengths are one or more positive numbers, not {strengths!r}.")
    if not 2 <= folds <= len(np.unique(train_groups)):
        raise ValueError(
            f"{len(np.unique(train_groups))} groups of training scenes do not make {folds} folds; folds are "
            "at least 2 and at most as many as groups."
        )
    scaler = StandardScaler().fit(train)
    train, test = scaler.transform(train), scaler.transform(test)
    if train.shape[1] > len(train):
        # An L2 penalty keeps the weights among combinations of the rows: their span holds the same probe.
        basis, _ = np.linalg.qr(train.T)
        train, test = train @ basis, test @ basis
    # Newton's method in float64 ends at the optimum, not near it: the probe does not hang on the last bits
    probe = LogisticRegression(solver="newton-cholesky", tol=1e-8, max_iter=200)
    search = GridSearchCV(probe, {"C": sorted(strengths)}, cv=GroupKFold(folds), scoring="accuracy")
    search.fit(train, train_labels, groups=train_groups)
    right = (search.predict(test) == test_labels).astype(float)
    accuracy, groups = right.mean(), len(np.unique(test_groups))
    if accuracy in (0, 1):
        low, high = binomtest(int(accuracy) * groups, groups).proportion_ci()
    else:
        low, high = bootstrap_interval(right, test_groups, seed)
    _, counts = np.unique(test_labels, return_counts=True)
    return BindingScore(
        float(accuracy), float(low), float(high), float(counts.max() / len(right)),
        float(search.best_params_["C"]), len(right),
    )  # fmt: skip


def _checked_set(embeddings, labels, groups, what: str) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    if isinstance(embeddings, Tensor):
        embeddings = embeddings.detach().cpu().numpy()
    rows, labels = np.asarray(embeddings, dtype=np.float64), np.asarray(labels)
    if rows.ndim != 2 or 0 in rows.shape or labels.shape != (len(rows),):
        raise ValueError(
            f"A {what} set is embeddings (n, D) with a label each, not {rows.shape} and {labels.shape}."
        )
    if not np.isfinite(rows).all():
        raise ValueError(f"A {what} embedding holds NaN or infinity; check the images and the encoder.")
    groups = np.arange(len(rows)) if groups is None else np.asarray(groups)
    if groups.shape != labels.shape:
        raise ValueError(f"There are {len(rows)} {what} embeddings and groups of shape {groups.shape}.")
    return rows, labels, groups


def binding_table(
    encode: Callable[[np.ndarray], np.ndarray],
    *,
    n_train: int = 1200,
    n_test: int = 800,
    seed: int = 0,
    places: str = "left-right",
) -> pd.DataFrame:
    """Binding and same/different accuracy of an encoder, with the controls that say what they mean.

    Rows:

    ``binding``, ``same/different``, ``shapes``
        the probe on the encoder's embeddings, trained in training colours, asked about test colours.
    ``binding, true factors``, ``same/different, true factors``
        the ceiling: the same probe on :func:`true_factors`.
    ``binding, shuffled labels``
        chance, by experiment: the same embeddings, training labels in random order.
    ``colour shortcut, train colours``, ``colour shortcut, test colours``
        a probe that sees colours only (:func:`color_features`), trained on scenes whose colours give the
        label away: on more of these scenes, and on the test scenes of the row ``binding``. The first is near
        1 and the second at chance if test colours do rule a colour shortcut out.

    Parameters
    ----------
    encode : images (n, 64, 64, 3) uint8 -> embeddings (n, D); for a dual encoder
        ``lambda images: encoder.encode_images(images).pooled``.
    n_train, n_test : scenes of each task, multiples of 4.
    seed : fixes scenes, shuffling and intervals.
    places : ``"left-right"`` or ``"four"``.

    Returns
    -------
    DataFrame with columns ``accuracy``, ``low``, ``high``, ``chance``, ``strength`` and ``n``, see
    :class:`BindingScore`.

    Raises
    ------
    ValueError : as :func:`binding_scenes` and :func:`binding_accuracy`; embeddings that are not one a scene.
    """

    def score(features: Callable, pair: tuple[BindingScenes, BindingScenes], labels=None) -> BindingScore:
        train, test = pair
        return binding_accuracy(
            features(train), train.label if labels is None else labels, features(test), test.label,
            train_groups=train.group, test_groups=test.group, seed=seed,
        )  # fmt: skip

    streams = iter(np.random.SeedSequence(seed).generate_state(2 * len(TASKS) + 3))

    def sample(n: int, colors: str, **options) -> BindingScenes:
        return binding_scenes(n, int(next(streams)), colors, places=places, **options)

    tasks = {task: (sample(n_train, "train", task=task), sample(n_test, "test", task=task)) for task in TASKS}
    told = tuple(sample(n, "train", shortcut=True) for n in (n_train, n_test))
    shuffled = np.random.default_rng(next(streams)).permutation(tasks["binding"][0].label)
    embeddings = {
        id(scenes): encode(draw_binding_scenes(scenes)) for pair in tasks.values() for scenes in pair
    }

    def embedded(scenes: BindingScenes) -> np.ndarray:
        return embeddings[id(scenes)]

    rows = {
        "binding": score(embedded, tasks["binding"]),
        "same/different": score(embedded, tasks["same-different"]),
        "shapes": score(embedded, tasks["shapes"]),
        "binding, true factors": score(true_factors, tasks["binding"]),
        "same/different, true factors": score(
            lambda scenes: true_factors(scenes, "same-different"), tasks["same-different"]
        ),
        "binding, shuffled labels": score(embedded, tasks["binding"], shuffled),
        "colour shortcut, train colours": score(color_features, told),
        "colour shortcut, test colours": score(color_features, (told[0], tasks["binding"][1])),
    }
    return pd.DataFrame({name: asdict(row) for name, row in rows.items()}).T.astype({"n": int})
