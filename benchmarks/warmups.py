"""The figure of how long cross-entropy should come first.

    python benchmarks/warmups.py benchmarks/results/losses-long.json benchmarks/results/losses-long.svg

Drawn from what losses.py measured.
"""

import argparse
import json
from pathlib import Path
from statistics import mean, stdev

from coteach.figures import COLOURS, name_panel, new_figure, save, tell
from coteach.names import DATASET_LABELS

DEFAULT = {"mnist": 10, "cifar10": 10, "digits": 20}  # of which there are few


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("raw", type=Path)
    parser.add_argument("figure", type=Path)
    options = parser.parse_args()
    draw(json.loads(options.raw.read_text()), options.figure)


def draw(raw: list[dict], path: Path) -> None:
    datasets, noises = list(dict.fromkeys(row["dataset"] for row in raw)), list(raw[0]["accuracy"])
    warmups = sorted({row["warmup"] for row in raw})
    figure, axes = new_figure(len(datasets), len(noises), 1.5 * len(datasets) + 0.5, sharex=True, sharey=False)
    for i, dataset in enumerate(datasets):
        rows = [row for row in raw if row["dataset"] == dataset]
        places = [warmups.index(row["warmup"]) for row in rows]
        for ax, noise in zip(axes[i], noises, strict=True):
            of_seeds = [row["accuracy"][noise] for row in rows]
            ax.axvline(warmups.index(DEFAULT[dataset]), color="#bbbbbb", linewidth=6, alpha=0.5)
            ax.errorbar(
                places,
                [mean(found) for found in of_seeds],
                [stdev(found) for found in of_seeds],
                color=COLOURS["coteaching"],
                marker="o",
                capsize=2,
                markersize=4,
                linewidth=1.2,
            )
            ax.margins(x=0.08)
            kind, rate = noise.split()
            name_panel(ax, f"{DATASET_LABELS.get(dataset, dataset)}, {kind} {100 * float(rate):g} %")
            ax.set_xticks(range(len(warmups)), list(map(str, warmups)))
        axes[i, 0].set_ylabel("test accuracy (%)")
    for ax in axes[-1]:
        ax.set_xlabel("epochs of cross-entropy first")
    tell(
        figure,
        f"Cross-entropy first: the default length ends at most {most_lost(raw):.1f} points below the best tried",
        "Co-teaching, then softmax twice to epoch 200. Mean and standard deviation over seeds; grey: the default.",
    )
    save(figure, [path])


def most_lost(raw: list[dict]) -> float:
    """Points between the best length and the default, in the setting where they are most apart."""
    gaps = []
    for dataset, default in DEFAULT.items():
        rows = [row for row in raw if row["dataset"] == dataset]
        for noise in rows[0]["accuracy"]:
            means = {row["warmup"]: mean(row["accuracy"][noise]) for row in rows}
            gaps.append(max(means.values()) - means[default])
    return max(gaps)


if __name__ == "__main__":
    main()
