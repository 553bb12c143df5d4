"""Figures: they draw what they are given and say what they cannot draw."""

from __future__ import annotations

import io

import matplotlib as mpl
import matplotlib.pyplot as plt
import numpy as np
import pandas as pd
import pytest
from PIL import Image

from readout_utils import figures
from readout_utils.captions import flip, swap
from readout_utils.scenes import draw_scenes, question_scenes

mpl.use("Agg")


@pytest.fixture(autouse=True)
def close():
    figures.use_style()
    yield
    plt.close("all")


def test_figures_have_a_white_face():
    figure = figures.show_images(np.zeros((3, 8, 8, 3), np.uint8), ["a", "b", "c"])
    image = Image.open(io.BytesIO(figures.figure_png(figure))).convert("RGB")
    assert image.getpixel((0, 0)) == (255, 255, 255)
    with pytest.raises(ValueError, match="No images"):
        figures.show_images([])


def test_accuracy_plot_shows_every_readout():
    table = pd.DataFrame(
        {"accuracy": [0.5, 0.9], "low": [0.48, 0.88], "high": [0.52, 0.92], "null": [0.5, 0.49], "null_low": [0.48, 0.47], "null_high": [0.52, 0.51]},
        index=["deployed", "ADR"],
    )  # fmt: skip
    ax = figures.plot_accuracy(table)
    assert [label.get_text() for label in ax.get_yticklabels()] == ["deployed", "ADR"]


def test_map_puts_the_centroid_where_it_is():
    _, ax = plt.subplots()
    figures.show_map(
        ax, np.zeros((64, 64, 3), np.uint8), np.arange(4.0), (2, 2), centroid=np.array([0.25, 0.75])
    )
    assert ax.lines[0].get_xydata().tolist() == [[16.0, 48.0]]


def test_explorer_is_self_contained():
    png = figures.figure_png(figures.show_images(np.zeros((1, 8, 8, 3), np.uint8)))
    page = figures.explorer(
        {"one": [png, png], "two": [png, png]}, ["0.1", "<0.2>"], "temperature", 'a "map"'
    ).data
    assert "http" not in page
    assert page.count("data:image/png;base64,") == 5
    assert 'alt="a &quot;map&quot;"' in page
    with pytest.raises(ValueError, match="1 pictures for 2 steps"):
        figures.explorer({"one": [png]}, ["0.1", "0.2"], "temperature", "a map")


def test_live_explorer_follows_its_controls(pocket):
    picture = draw_scenes(question_scenes("left-right", 2, 0))[0]
    a, b = question_scenes("left-right", 2, 0).nouns(0)
    caption = f"a {a} to the left of a {b}"
    box = figures.live_explorer(pocket, picture, [caption, swap(caption), flip(caption)])
    choice, variant, temperature, output = box.children
    assert choice.options == (caption, swap(caption), flip(caption))
    variant.value = "dense"
    temperature.value = 0.2
    assert temperature.value == pytest.approx(0.2)
    assert output is not None


def test_percent():
    assert figures.percent(0.914) == "91 %"
    assert figures.percent(0.914, 1) == "91.4 %"
