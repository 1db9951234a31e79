"""recipes/digits.yaml on its test part: five seeds, with positions and without.

    python benchmarks/digits.py [--seeds 5]

Each run is what `headwise train recipes/digits.yaml --train.seed N` does; the weights that it ends with are
measured once on the test part (a fifth of the digits, drawn by class, the same for every seed), which
neither training nor the choice of the recipe looked at.
"""

from __future__ import annotations

import argparse
import statistics
import tempfile
import time
from dataclasses import replace
from pathlib import Path

import torch

from headwise.checkpoint.run import ImageRun, load_run
from headwise.cli.train import config_of
from headwise.config import RunConfig
from headwise.data.images import load_pictures
from headwise.train.images import measure
from headwise.train.loop import train

RECIPE = Path(__file__).parent.parent / "recipes" / "digits.yaml"


def run(recipe: RunConfig, seed: int, positions: str, folder: Path) -> tuple[float, float, float]:
    """Seconds of training, accuracy on the validation part, accuracy on the test part."""
    model = replace(recipe.model, positions=positions)
    config = replace(
        recipe, run=str(folder / f"{positions}-{seed}"), model=model, train=replace(recipe.train, seed=seed)
    )
    began = time.perf_counter()
    train(config)
    seconds = time.perf_counter() - began
    loaded = load_run(config.folder)
    assert isinstance(loaded, ImageRun)
    parts = load_pictures(config.data.images, config.model.patches)
    found = [
        measure(loaded.model, part, parts.classes, 256).scores.accuracy
        for part in (parts.validation, parts.test)
    ]
    return seconds, found[0], found[1]


def main() -> None:
    """Print every run, and the means."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").partition("\n")[0])
    parser.add_argument("--seeds", type=int, default=5)
    seeds = parser.parse_args().seeds
    recipe = config_of(RECIPE)
    print(f"torch {torch.__version__}, {torch.get_num_threads()} threads")
    for positions in (recipe.model.positions, "none"):
        tests: list[float] = []
        with tempfile.TemporaryDirectory() as folder:
            for seed in range(1, seeds + 1):
                seconds, validation, test = run(recipe, seed, positions, Path(folder))
                tests.append(100 * test)
                print(
                    f"positions {positions:<10} seed {seed}  {seconds:5.1f} s  validation {validation:7.2%}  "
                    f"test {test:7.2%}"
                )
        spread = statistics.stdev(tests) if len(tests) > 1 else 0.0
        mean = statistics.mean(tests)
        print(f"positions {positions:<10} mean of {seeds} seeds: test {mean:.2f} %, deviation {spread:.2f}")


if __name__ == "__main__":
    main()
