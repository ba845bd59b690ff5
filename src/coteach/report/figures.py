"""Figures in the manner of the paper's: a panel for each noise, a line for each method, a band over the seeds."""

from collections.abc import Callable
from pathlib import Path

import numpy as np

# Okabe and Ito's eight colours, which most colour-blind people can tell apart, the yellow darkened for white
# paper; then grey and two of Tol's.
COLOURS = (
    "#000000",
    "#E69F00",
    "#56B4E9",
    "#009E73",
    "#A6A000",
    "#0072B2",
    "#D55E00",
    "#CC79A7",
    "#999999",
    "#882255",
    "#44AA99",
)
DASHES = ("-", "--", ":")

Curves = dict[str, dict[str, list[dict]]]  # panel → label → rows of metrics.jsonl


def curves(panels: Curves, paths: list[Path], title: str = "") -> None:
    """Test accuracy over label precision against the epoch, written to each path (its suffix is the format)."""
    import matplotlib

    matplotlib.use("Agg")
    import matplotlib.pyplot as plt

    styles = line_styles(list(next(iter(panels.values()))))
    figure, axes = plt.subplots(
        2,
        len(panels),
        figsize=(4.6 * len(panels), 6.4),
        sharex=True,
        sharey="row",
        squeeze=False,
        layout="constrained",
    )
    for column, (panel, by_label) in enumerate(panels.items()):
        for label, (colour, dash) in styles.items():
            for row, measure in enumerate((accuracy, precision)):
                epochs, values = by_epoch(by_label[label], measure)
                mean, spread = values.mean(0), values.std(0, ddof=1) if len(values) > 1 else 0
                axes[row, column].plot(epochs, mean, dash, color=colour, label=label, linewidth=1.4)
                axes[row, column].fill_between(
                    epochs,
                    np.clip(mean - spread, 0, 100),
                    np.clip(mean + spread, 0, 100),
                    color=colour,
                    alpha=0.12,
                    linewidth=0,
                )
        axes[0, column].set_title(panel)
        axes[1, column].set_xlabel("epoch")
        for ax in axes[:, column]:
            ax.grid(alpha=0.25)
            ax.spines[["top", "right"]].set_visible(False)
            ax.margins(x=0.01)
    axes[0, 0].set_ylabel("test accuracy (%)")
    axes[1, 0].set_ylabel("label precision (%)")
    handles, names = axes[0, 0].get_legend_handles_labels()
    figure.legend(handles, names, loc="outside upper center", ncols=min(len(names), 4), frameon=False, fontsize=9)
    if title:
        figure.supxlabel(title, fontsize=8, color="#555555")
    for path in paths:
        figure.savefig(path, dpi=150)
    plt.close(figure)


def line_styles(labels: list[str]) -> dict[str, tuple[str, str]]:
    """A colour for each method; its variants, "method, variant", share it and differ in the dash."""
    variants: dict[str, list[str]] = {}
    for label in labels:
        variants.setdefault(label.split(",")[0], []).append(label)
    return {
        label: (COLOURS[i % len(COLOURS)], DASHES[k % len(DASHES)])
        for i, same_method in enumerate(variants.values())
        for k, label in enumerate(same_method)
    }


def accuracy(row: dict) -> float:
    return 100 * sum(row["test_accuracy"]) / len(row["test_accuracy"])


def precision(row: dict) -> float:
    return np.nan if row["label_precision"] is None else 100 * row["label_precision"]


def by_epoch(rows: list[dict], measure: Callable[[dict], float]) -> tuple[list[int], np.ndarray]:
    """The epochs, and the measure as an array of seeds × epochs."""
    seeds = sorted({row["seed"] for row in rows})
    epochs = sorted({row["epoch"] for row in rows})
    table = {(row["seed"], row["epoch"]): measure(row) for row in rows}
    return epochs, np.array([[table[seed, epoch] for epoch in epochs] for seed in seeds])
