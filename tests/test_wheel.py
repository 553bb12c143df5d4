"""What Colab does: the package from a wheel, in an environment of its own, each chapter alone in a folder."""

from __future__ import annotations

import os
import subprocess
import sys
import sysconfig
import venv
import zipfile
from pathlib import Path

import pytest

from readout_utils.encoders import _POCKETS

ROOT = Path(__file__).parents[1]
sys.path.insert(0, str(ROOT / "tools"))
import book  # noqa: E402

# the build runs every chapter from the repository: here one from the wheel, and with the slow tests all of them
CHAPTERS = [
    pytest.param(path, marks=[pytest.mark.slow] * (not path.stem.startswith("02")), id=path.stem)
    for path in sorted((ROOT / "notebooks").glob("*.ipynb"))
]


def run(*command, **options) -> str:
    done = subprocess.run([str(part) for part in command], capture_output=True, text=True, **options)
    assert done.returncode == 0, done.stderr[-3000:]
    return done.stdout


@pytest.fixture(scope="module")
def python(tmp_path_factory) -> Path:
    """An environment with the wheel in it; torch and the rest are borrowed from this one by path.

    A plain path line does not run the borrowed folder's own ``.pth`` files, so an editable install of the
    working tree stays out of sight.
    """
    folder = tmp_path_factory.mktemp("wheel")
    run(
        sys.executable,
        "-m",
        "pip",
        "wheel",
        ROOT,
        "--no-deps",
        "--no-build-isolation",
        "-q",
        "-w",
        folder / "dist",
    )
    (wheel,) = (folder / "dist").glob("*.whl")
    venv.create(folder / "env", with_pip=False)
    inside = folder / "env" / ("Scripts" if os.name == "nt" else "bin") / "python"
    site = Path(run(inside, "-c", "import sysconfig; print(sysconfig.get_path('purelib'))").strip())
    run(sys.executable, "-m", "pip", "install", "-q", "--no-deps", "--target", site, wheel)
    (site / "borrowed.pth").write_text(sysconfig.get_path("purelib") + "\n")
    return inside


def test_the_wheel_carries_every_file_of_the_package(python, tmp_path):
    (wheel,) = (python.parents[2] / "dist").glob("*.whl")
    with zipfile.ZipFile(wheel) as packed:
        files = {name for name in packed.namelist() if name.startswith("readout_utils/")}
    assert files == {path.relative_to(ROOT).as_posix() for path in book.sources(ROOT / "readout_utils")}


def test_the_installed_package_finds_its_data(python, tmp_path):
    where = run(python, "-c", "import readout_utils; print(readout_utils.__file__)", cwd=tmp_path)
    assert str(python.parents[1]) in where
    for name in _POCKETS:
        code = f"from readout_utils.encoders import load_encoder; print(load_encoder({name!r}))"
        assert name in run(python, "-c", code, cwd=tmp_path)


@pytest.mark.parametrize("path", CHAPTERS)
def test_chapter_runs_alone_in_an_empty_folder(python, path, tmp_path):
    (tmp_path / path.name).write_bytes(path.read_bytes())
    code = (
        "import sys, nbformat\nfrom nbclient import NotebookClient\n"
        "notebook = nbformat.read(sys.argv[1], as_version=4)\n"
        "NotebookClient(notebook, kernel_name='python3', timeout=600).execute()\n"
        "import readout_utils; print(readout_utils.__file__)"
    )
    where = run(python, "-c", code, path.name, cwd=tmp_path)
    assert str(python.parents[1]) in where
