"""Rebuild the sticker atlas, byte for byte, from named npm packages.

    python recipes/build_atlas.py            # writes readout_utils/data/stickers.png
    python recipes/build_atlas.py --check    # rebuilds and compares with the shipped file

Needs npm (to fetch the packages by name and version), Pillow and resvg_py at the versions of
``requirements/recipes.txt``: another version may resample or compress differently.
"""

from __future__ import annotations

import argparse
import io
import subprocess
import sys
import tarfile
from pathlib import Path

import numpy as np
import resvg_py
from PIL import Image

from readout_utils.scenes import NOUNS, STICKER_PIXELS, STYLES

ATLAS = Path(__file__).parents[1] / "readout_utils" / "data" / "stickers.png"

#: style -> (npm package, version, path of an image inside it)
SOURCES = {
    "noto": ("emoji-datasource-google", "16.0.0", "package/img/google/64/{code}.png"),
    "twemoji": ("emoji-datasource-twitter", "16.0.0", "package/img/twitter/64/{code}.png"),
    "openmoji": ("openmoji", "17.0.0", "package/color/svg/{CODE}.svg"),
    "emojione": ("emojione", "2.2.7", "package/assets/png_128x128/{code}.png"),
    "fluent": ("@lobehub/fluent-emoji-3d", "1.1.0", "package/assets/{code}.webp"),
}


def fetch(package: str, version: str, cache: Path) -> Path:
    """Path of the package's archive, fetched with ``npm pack`` unless it is in ``cache``."""
    archive = cache / f"{package.replace('@', '').replace('/', '-')}-{version}.tgz"
    if not archive.exists():
        subprocess.run(["npm", "pack", "--silent", f"{package}@{version}"], cwd=cache, check=True)
    return archive


def member(archive: tarfile.TarFile, template: str, code: str) -> bytes:
    """An emoji's image file; sets disagree on whether to write the variation selector."""
    for spelling in (code, code.removesuffix("-fe0f")):
        name = template.format(code=spelling, CODE=spelling.upper())
        try:
            return archive.extractfile(name).read()
        except KeyError:
            continue
    raise SystemExit(f"{archive.name} has no image for {code} ({template}).")


def sticker(data: bytes, svg: bool) -> Image.Image:
    """Trim to the opaque part, fit into the square cell, centre."""
    if svg:
        data = bytes(resvg_py.svg_to_bytes(svg_string=data.decode(), width=256, height=256))
    image = Image.open(io.BytesIO(data)).convert("RGBA")
    alpha = np.asarray(image)[..., 3] > 16
    rows, columns = np.flatnonzero(alpha.any(1)), np.flatnonzero(alpha.any(0))
    image = image.crop((columns[0], rows[0], columns[-1] + 1, rows[-1] + 1))
    scale = STICKER_PIXELS / max(image.size)
    size = [max(1, round(side * scale)) for side in image.size]
    image = image.resize(size, Image.Resampling.LANCZOS)
    cell = Image.new("RGBA", (STICKER_PIXELS, STICKER_PIXELS))
    cell.paste(image, ((STICKER_PIXELS - size[0]) // 2, (STICKER_PIXELS - size[1]) // 2))
    pixels = np.array(cell)
    pixels[pixels[..., 3] == 0] = 0  # invisible colours compress badly and mean nothing
    return Image.fromarray(pixels)


def build(cache: Path) -> bytes:
    """The atlas as PNG bytes: a row a style, a column a noun."""
    sheet = Image.new("RGBA", (STICKER_PIXELS * len(NOUNS), STICKER_PIXELS * len(STYLES)))
    for row, style in enumerate(STYLES):
        package, version, template = SOURCES[style]
        with tarfile.open(fetch(package, version, cache)) as archive:
            for column, code in enumerate(NOUNS.values()):
                cell = sticker(member(archive, template, code), template.endswith(".svg"))
                sheet.paste(cell, (column * STICKER_PIXELS, row * STICKER_PIXELS))
    buffer = io.BytesIO()
    sheet.save(buffer, "PNG", optimize=True)
    return buffer.getvalue()


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--cache", type=Path, default=Path("build/npm"), help="package archives")
    parser.add_argument("--check", action="store_true", help="compare, do not write")
    arguments = parser.parse_args()
    arguments.cache.mkdir(parents=True, exist_ok=True)
    data = build(arguments.cache)
    if arguments.check:
        same = data == ATLAS.read_bytes()
        print(f"{ATLAS.name}: {'identical' if same else 'DIFFERENT'} ({len(data):,} bytes)")
        sys.exit(not same)
    ATLAS.write_bytes(data)
    print(f"wrote {ATLAS} ({len(data):,} bytes)")


if __name__ == "__main__":
    main()
