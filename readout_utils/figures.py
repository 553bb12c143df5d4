"""The book's figures: one style, pictures with overlays, bars with intervals, an explorer.

Every function draws on axes it is given or makes, and returns them; nothing here computes a result.
"""

from __future__ import annotations

import base64
import hashlib
import html
import io
import json
from collections.abc import Sequence

import matplotlib as mpl
import matplotlib.pyplot as plt
import numpy as np
import pandas as pd
import seaborn as sns
from matplotlib.axes import Axes
from matplotlib.figure import Figure

#: The Okabe-Ito palette: distinguishable in all common kinds of colour vision.
BLACK, ORANGE, SKY, GREEN, YELLOW, BLUE, VERMILION, PURPLE = (
    "#000000", "#E69F00", "#56B4E9", "#009E73", "#F0E442", "#0072B2", "#D55E00", "#CC79A7"
)  # fmt: skip
GREY = "#7A7A7A"
#: What the subject and the object of a caption are drawn in, everywhere in the book.
SUBJECT, OBJECT = BLUE, VERMILION


def use_style() -> None:
    """Set the book's matplotlib style for the session."""
    sns.set_theme(
        style="ticks",
        palette=[BLUE, ORANGE, GREEN, VERMILION, PURPLE, SKY, YELLOW],
        rc={
            "figure.facecolor": "white",
            "savefig.facecolor": "white",
            "axes.facecolor": "white",
            "axes.spines.top": False,
            "axes.spines.right": False,
            "axes.titlesize": 12,
            "axes.labelsize": 11,
            "xtick.labelsize": 10,
            "ytick.labelsize": 10,
            "legend.frameon": False,
            "legend.fontsize": 10,
            "figure.dpi": 110,
            "figure.constrained_layout.use": True,
            "font.family": "DejaVu Sans",
        },
    )
    mpl.rcParams["svg.hashsalt"] = "readout"


def show_images(
    images: Sequence, titles: Sequence[str] | None = None, columns: int = 6, size: float = 1.5
) -> Figure:
    """Pictures (B, H, W, 3) in a grid, each with a title."""
    images = list(images)
    if not images:
        raise ValueError("No images to show.")
    columns = min(columns, len(images))
    rows = -(-len(images) // columns)
    room = 0.28 if titles is not None else 0.0
    figure, axes = plt.subplots(rows, columns, figsize=(columns * size, rows * (size + room)), squeeze=False)
    for ax in axes.flat:
        ax.axis("off")
    for index, image in enumerate(images):
        ax = axes.flat[index]
        ax.imshow(image, interpolation="nearest")
        if titles is not None:
            ax.set_title(titles[index], fontsize=9)
    return figure


def show_map(
    ax: Axes,
    image: np.ndarray,
    weights: np.ndarray,
    grid: tuple[int, int],
    *,
    title: str = "",
    centroid: np.ndarray | None = None,
    color: str = SUBJECT,
    vmin: float | None = None,
    vmax: float | None = None,
    cmap="rocket_r",
) -> Axes:
    """A map over patches (N,), with the picture beneath it and its centroid (x, y in 0..1) on top."""
    height, width = image.shape[:2]
    extent = (0, width, height, 0)
    ax.imshow(image.mean(-1), cmap="gray", vmin=0, vmax=330, extent=extent)
    values = np.asarray(weights, dtype=float).reshape(grid)
    ax.imshow(values, cmap=cmap, extent=extent, alpha=0.72, interpolation="nearest", vmin=vmin, vmax=vmax)
    if centroid is not None:
        ax.plot(
            centroid[0] * width, centroid[1] * height, marker="o", markersize=10,
            markerfacecolor=color, markeredgecolor="white", markeredgewidth=2,
        )  # fmt: skip
    ax.set(xticks=[], yticks=[], title=title)
    sns.despine(ax=ax, left=True, bottom=True)
    return ax


def show_displacement(
    ax: Axes,
    image: np.ndarray,
    subject: np.ndarray,
    obj: np.ndarray,
    labels: tuple[str, str],
    title: str = "",
) -> Axes:
    """The picture, both centroids (x, y in 0..1) and the arrow from the object's to the subject's."""
    height, width = image.shape[:2]
    ax.imshow(image)
    (sx, sy), (ox, oy) = np.array(subject) * (width, height), np.array(obj) * (width, height)
    ax.annotate(
        "",
        (sx, sy),
        (ox, oy),
        arrowprops={"arrowstyle": "-|>", "lw": 3, "color": "white", "shrinkA": 0, "shrinkB": 4},
    )
    ax.annotate(
        "", (sx, sy), (ox, oy), arrowprops={"arrowstyle": "-|>", "lw": 1.6, "color": "black", "shrinkA": 0, "shrinkB": 4}
    )  # fmt: skip
    for x, y, color, label in ((sx, sy, SUBJECT, labels[0]), (ox, oy, OBJECT, labels[1])):
        ax.plot(
            x, y, marker="o", markersize=10, markerfacecolor=color, markeredgecolor="white", markeredgewidth=2
        )
        ax.text(
            x, y - 0.07 * height, label, color=color, ha="center", va="bottom", fontsize=9, fontweight="bold",
            bbox={"facecolor": "white", "alpha": 0.8, "edgecolor": "none", "pad": 1},
        )  # fmt: skip
    ax.set(xticks=[], yticks=[], title=title)
    sns.despine(ax=ax, left=True, bottom=True)
    return ax


def show_variants(image: np.ndarray, table: pd.DataFrame, readout: str) -> Figure:
    """A picture, and the scores of a caption and its variants: what means the same in blue, the rest in vermilion.

    ``table`` is one of :func:`readout_utils.hard_positives.variant_scores`; texts that the readout does not cover
    stand in grey without a mark.
    """
    table = table.sort_values(readout, na_position="first")
    figure, axes = plt.subplots(1, 2, figsize=(9, 0.3 * len(table) + 1.0), width_ratios=(1, 2.4))
    axes[0].imshow(image)
    axes[0].axis("off")
    colors = np.where(table[readout].isna(), GREY, np.where(table.positive, BLUE, VERMILION))
    for row, (score, positive, color) in enumerate(zip(table[readout], table.positive, colors, strict=True)):
        axes[1].plot(score, row, "o" if positive else "X", color=color, markersize=8)
    labels = [
        text if kind != "caption" else f"{text}  (the caption)"
        for text, kind in zip(table.text, table.kind, strict=True)
    ]
    axes[1].set(
        yticks=range(len(table)),
        yticklabels=labels,
        xlabel=f"score: {readout}",
        ylim=(-0.6, len(table) - 0.4),
    )
    axes[1].xaxis.set_major_locator(plt.MaxNLocator(5))
    for label, color in zip(axes[1].get_yticklabels(), colors, strict=True):
        label.set_color(color)
    return figure


def plot_accuracy(table: pd.DataFrame, ax: Axes | None = None, chance: float = 0.5) -> Axes:
    """Accuracy and null of each readout, with intervals: a table of ``evaluate`` as a figure."""
    if ax is None:
        _, ax = plt.subplots(figsize=(7, 0.6 + 0.55 * len(table)))
    rows = np.arange(len(table))[::-1]
    for prefix, label, color, marker, shift in (
        ("null_", "null (another image)", GREY, "s", -0.14),
        ("", "its own image", BLUE, "o", 0.14),
    ):
        middle = table["null" if prefix else "accuracy"]
        low, high = table[f"{prefix}low"], table[f"{prefix}high"]
        ax.errorbar(
            100 * middle, rows + shift, xerr=100 * np.clip([middle - low, high - middle], 0, None),
            fmt=marker, color=color, label=label, capsize=3, markersize=7,
        )  # fmt: skip
    ax.axvline(100 * chance, color=BLACK, lw=1, ls=":", zorder=0)
    ax.set(yticks=rows, yticklabels=table.index, xlabel="accuracy (%)", xlim=(0, 102))
    ax.set_ylim(-0.6, len(table) - 0.4)
    ax.legend(loc="lower left", bbox_to_anchor=(0, 1.0), ncols=2, borderaxespad=0.1)
    return ax


def percent(value: float, digits: int = 0) -> str:
    """A fraction as text: 0.914 is "91 %"."""
    return f"{100 * value:.{digits}f} %"


def say(text: str):
    """A sentence with numbers in it, shown as prose: text/markdown output of a cell."""
    from IPython.display import Markdown, display

    display(Markdown(text))


def verdict(low: float, high: float, level: float, below: str, undecided: str, above: str) -> str:
    """One of three sentences, by where an interval lies: below a level, across it, above it.

    A sentence that depends on a measured number depends on its interval, so that no digit which another machine
    prints otherwise turns it round.

    Raises
    ------
    ValueError : an interval that is NaN or upside down.
    """
    if not low <= high:
        raise ValueError(f"An interval runs from low to high, not from {low} to {high}.")
    return below if high < level else above if low > level else undecided


def figure_png(figure: Figure, dpi: int = 80, colors: int = 128) -> bytes:
    """A figure as a small palette PNG, and the figure closed."""
    from PIL import Image

    buffer = io.BytesIO()
    figure.savefig(buffer, dpi=dpi, format="png")
    plt.close(figure)
    small = Image.open(buffer).convert("RGB").quantize(colors)
    out = io.BytesIO()
    small.save(out, "PNG", optimize=True)
    return out.getvalue()


def explorer(pictures: dict[str, Sequence[bytes]], steps: Sequence[str], label: str, alt: str):
    """A picture with a choice of rows and a slider over steps, as one self-contained HTML output.

    Parameters
    ----------
    pictures : row title -> PNG bytes, one for each step.
    steps : what each step is called.
    label : what the slider moves.
    alt : what the pictures show, for those who do not see them.

    Everything is inside the output, so it works without a kernel and without a network: in the built
    page, in JupyterLab and in Colab.
    """
    from IPython.display import HTML

    for title, frames in pictures.items():
        if len(frames) != len(steps):
            raise ValueError(f"{title!r} has {len(frames)} pictures for {len(steps)} steps.")
    frames = {
        title: ["data:image/png;base64," + base64.b64encode(frame).decode() for frame in row]
        for title, row in pictures.items()
    }
    first = next(iter(frames))
    # named for what it shows, never for rendered bytes, which another machine draws otherwise
    said = json.dumps([list(frames), list(steps), label, alt])
    name = "explorer-" + hashlib.sha256(said.encode()).hexdigest()[:10]
    radios = "".join(
        f'<label style="margin-right:1em"><input type="radio" name="{name}-row" value="{html.escape(title)}"'
        f"{' checked' if title == first else ''}> {html.escape(title)}</label>"
        for title in frames
    )
    return HTML(f"""
<div id="{name}" class="explorer" style="background:#fff;color:#111;padding:0.6em;max-width:46em">
<div>{radios}</div>
<label>{html.escape(label)} <input type="range" min="0" max="{len(steps) - 1}" value="0" step="1"
 aria-label="{html.escape(label)}" style="width:60%;vertical-align:middle"> <b class="step">{html.escape(steps[0])}</b></label>
<img src="{frames[first][0]}" alt="{html.escape(alt)}" style="width:100%;background:#fff">
</div>
<script>
(function () {{
  const root = document.getElementById("{name}"), frames = {json.dumps(frames)}, steps = {json.dumps(list(steps))};
  const slider = root.querySelector("input[type=range]"), radios = root.querySelectorAll("input[type=radio]");
  function show() {{
    const row = Array.from(radios).find(function (r) {{ return r.checked; }}).value;
    root.querySelector("img").src = frames[row][slider.value];
    root.querySelector(".step").textContent = steps[slider.value];
  }}
  slider.addEventListener("input", show);
  radios.forEach(function (r) {{ r.addEventListener("change", show); }});
}})();
</script>
""")


def live_explorer(encoder, image: np.ndarray, captions: Sequence[str]):
    """ADR on one picture with ipywidgets: choose caption, variant and temperature (needs a kernel).

    Returns an ipywidgets box: two lists, a slider, and the maps, centroids and score they give.
    """
    import ipywidgets as widgets
    from IPython.display import display

    from .alignment import VARIANTS, centroids, similarity, weights
    from .captions import parse_relation

    features = encoder.encode_images([image])
    caption = widgets.Dropdown(options=list(captions), description="caption")
    variant = widgets.Dropdown(options=VARIANTS, description="variant")
    temperature = widgets.FloatLogSlider(value=0.05, min=-2, max=0, step=0.1, description="temperature")
    output = widgets.Output()

    def draw(_=None):
        relation = parse_relation(caption.value)
        words = encoder.encode_texts([relation.subject, relation.object])
        maps = weights(similarity(features.patches, words), variant.value, temperature.value)[0]
        places = centroids(maps[None], features.grid)[0].numpy()
        score = float(np.dot(relation.axis, places[0] - places[1]))
        figure, axes = plt.subplots(1, 3, figsize=(7.5, 2.7))
        for k, (noun, color) in enumerate(((relation.subject, SUBJECT), (relation.object, OBJECT))):
            show_map(axes[k], image, maps[:, k], features.grid, title=noun, centroid=places[k], color=color)
        show_displacement(
            axes[2], image, places[0], places[1], (relation.subject, relation.object), f"score {score:+.3f}"
        )
        output.clear_output(wait=True)
        with output:
            display(figure)
        plt.close(figure)

    for control in (caption, variant, temperature):
        control.observe(draw, names="value")
    draw()
    return widgets.VBox([caption, variant, temperature, output])
