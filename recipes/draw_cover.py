"""Draw the README's picture: one decision of the displacement readout, from pixels to sign.

python recipes/draw_cover.py
"""

from __future__ import annotations

from pathlib import Path

import matplotlib as mpl
import matplotlib.pyplot as plt

from readout_utils import figures
from readout_utils.alignment import centroids, similarity, weights
from readout_utils.captions import relate
from readout_utils.encoders import load_encoder
from readout_utils.readouts import Displacement
from readout_utils.scenes import draw_scenes, question_scenes

OUT = Path(__file__).parents[1] / "book" / "_static" / "one-decision.png"


def main() -> None:
    mpl.use("Agg")
    figures.use_style()
    encoder = load_encoder("pocket")
    scenes = question_scenes("left-right", 2, seed=3, sizes=(28, 32))[[0]]
    picture, crisp = draw_scenes(scenes), draw_scenes(scenes, scale=6)[0]
    features = encoder.encode_images(picture)
    subject, obj = scenes.nouns(0)
    caption = relate(subject, "to the left of", obj)
    maps = weights(similarity(features.patches, encoder.encode_texts([subject, obj])), "excess")
    places = centroids(maps, features.grid)[0].numpy()
    score = Displacement("excess").score(encoder, features, [caption])[0]
    figure, axes = plt.subplots(1, 4, figsize=(11, 3.2))
    axes[0].imshow(crisp)
    axes[0].set_title("the picture")
    axes[0].axis("off")
    for k, (noun, color) in enumerate(((subject, figures.SUBJECT), (obj, figures.OBJECT))):
        figures.show_map(
            axes[k + 1], crisp, maps[0, :, k], features.grid, centroid=places[k], color=color, vmin=0,
            title=f"where is {noun!r}?",
        )  # fmt: skip
    figures.show_displacement(axes[3], crisp, *places, (subject, obj), title=f"subtract: {score:+.2f}")
    figure.suptitle(f"“{caption}”", fontsize=13)
    figure.savefig(OUT, dpi=110)
    print(f"wrote {OUT}")


if __name__ == "__main__":
    main()
