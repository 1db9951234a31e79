"""Print a run's learning curve as a Markdown table, from its metrics.jsonl.

    python benchmarks/curve.py RUN [--every 5]

Losses in nats a token: training with label smoothing, validation without. Minutes are those of all
processes that trained the run, up to the last line that each one logged.
"""

from __future__ import annotations

import argparse
from pathlib import Path
from typing import Any

from headwise.see.curves import read_metrics


def add_up_seconds(lines: list[dict[str, Any]]) -> None:
    """Let `seconds` count from the first process on: each one starts its own clock."""
    before = latest = 0.0
    for line in lines:
        if "seconds" in line:
            if line["seconds"] < latest:
                before += latest
            latest = line["seconds"]
            line["seconds"] += before


def rows(lines: list[dict[str, Any]]) -> list[list[str]]:
    """One row for each validation, with the training line before it."""
    table: list[list[str]] = []
    logged: dict[str, Any] = {}
    for line in lines:
        if "loss" in line:
            logged = line
        elif "validation_loss" in line and logged:
            table.append(
                [
                    f"{line['step']:,}",
                    str(logged["epoch"] + 1),
                    f"{logged['tokens'] / 1e6:.1f}",
                    f"{logged['seconds'] / 60:.1f}",
                    f"{logged['loss']:.3f}",
                    f"{line['validation_loss']:.4f}",
                    f"{line['validation_perplexity']:.2f}",
                    f"{line['validation_accuracy']:.1%}",
                ]
            )
    return table


def main() -> None:
    """Print the table and the totals."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("run", type=Path)
    parser.add_argument("--every", type=int, default=5, help="print every Nth validation, and the last")
    options = parser.parse_args()
    lines = read_metrics(options.run)
    add_up_seconds(lines)
    header = [
        "step",
        "epoch",
        "M target tokens",
        "minutes",
        "training loss",
        "validation loss",
        "perplexity",
        "accuracy",
    ]
    table = rows(lines)
    print(f"| {' | '.join(header)} |\n|{' ---: |' * len(header)}")
    for number, row in enumerate(table, 1):
        if number % options.every == 0 or number == len(table):
            print(f"| {' | '.join(row)} |")
    logged = [line for line in lines if "loss" in line]
    final = [line for line in lines if "final_loss" in line]
    if logged:
        last = logged[-1]
        print(
            f"\n{last['step']:,} steps, {last['tokens']:,} target tokens in {last['seconds'] / 60:.1f} "
            f"minutes ({last['tokens'] / last['seconds']:,.0f} a second)"
        )
    if final:
        loss, perplexity = final[-1]["final_loss"], final[-1]["final_perplexity"]
        print(f"final weights: validation loss {loss:.4f}, perplexity {perplexity:.2f}")


if __name__ == "__main__":
    main()
