"""What the captions of real benchmarks give away: the table that chapter 4 shows.

    python recipes/measure_text_only.py --vsr FOLDER --valse FOLDER --sugarcrepe FOLDER

Each folder holds the original annotation files (see ``readout_utils.benchmarks`` for where to get them); pictures
are not needed. Writes readout_utils/data/text_only.csv.
"""

from __future__ import annotations

import argparse
from pathlib import Path

import pandas as pd

from readout_utils.benchmarks import load_benchmark
from readout_utils.evaluation import summarise, text_only

ROOT = Path(__file__).parents[1]
BENCHMARKS = {"vsr": ("vsr/horizontal", "vsr"), "valse": ("valse/relations",), "sugarcrepe": ("sugarcrepe",)}


def measure(folders: dict[str, Path]) -> pd.DataFrame:
    """One row a benchmark (and a part of SugarCrepe): n, accuracy and interval of a scorer of text."""
    rows = {}
    for kind, folder in folders.items():
        for name in BENCHMARKS[kind]:
            items = text_only(load_benchmark(name, root=folder))
            rows[name] = summarise(items).iloc[0]
            if kind == "sugarcrepe":
                rows |= {
                    f"sugarcrepe/{part}": row for (_, part), row in summarise(items, by="group").iterrows()
                }
            print(name, f"{rows[name].accuracy:.3f}", flush=True)
    table = pd.DataFrame.from_dict(rows, orient="index")[["n", "accuracy", "low", "high"]]
    return table.rename_axis("benchmark").astype({"n": int})


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    for kind in BENCHMARKS:
        parser.add_argument(f"--{kind}", type=Path, required=True, help="folder of the original files")
    arguments = parser.parse_args()
    table = measure({kind: getattr(arguments, kind) for kind in BENCHMARKS})
    table.to_csv(ROOT / "readout_utils" / "data" / "text_only.csv", float_format="%.6f")


if __name__ == "__main__":
    main()
