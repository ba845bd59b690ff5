"""Tables of the pages about audits, from the raw numbers in benchmarks/results/: means ± std over seeds."""

import json
from collections.abc import Callable, Iterable, Sequence
from pathlib import Path
from statistics import mean, median, stdev

RAW = Path(__file__).parents[1] / "benchmarks" / "results"
SCORES = ("cleanlab_self_confidence", "cleanlab_normalized_margin", "cleanlab_confidence_weighted_entropy")
SET_LABELS = {
    **{name: f"photos, {name}" for name in ("aggre", "rand1", "worst")},
    "trec": "TREC", "semeval": "SemEval", "youtube": "YouTube", "sms": "SMS",
    "breast symmetric 0.2": "breast cancer, symmetric 0.2",
    "digits symmetric 0.2": "digits, symmetric 0.2", "digits pair 0.3": "digits, pair 0.3",
}  # fmt: skip
REVIEWED_LABELS = {
    **{f"photos, {name}": f"4,000 photos, CIFAR-10N {name}" for name in ("aggre", "rand1", "worst")},
    "youtube": "YouTube comments, votes of rules",
    "sms": "SMS, votes of rules",
    "semeval": "SemEval, votes of rules",
    "trec": "TREC, votes of rules",
}
KINDS = (("given", "photos"), ("given", "texts"), ("clean", ""), ("drawn", ""))
KIND_LABELS = ("given by people, photos", "given by voting rules, texts", "true", "with drawn noise")
PHOTOS = ("aggre", "rand1", "worst")

Row = dict


def benchmark_table(name: str) -> str:
    return TABLES[name]()


def read(name: str) -> list[Row]:
    return json.loads((RAW / f"{name}.json").read_text(encoding="utf-8"))


def by(rows: Iterable[Row], *keys: str) -> dict[tuple, list[Row]]:
    """In the order in which they were measured."""
    groups: dict[tuple, list[Row]] = {}
    for row in rows:
        groups.setdefault(tuple(row[key] for key in keys), []).append(row)
    return groups


def spread(rows: list[Row], key: str, digits: int = 3, scale: float = 1) -> str:
    values = [scale * row[key] for row in rows]
    return f"{mean(values):.{digits}f}" + (f" ± {stdev(values):.{digits}f}" if len(values) > 1 else "")


def average(rows: list[Row], key: str, scale: float = 1) -> float:
    return scale * mean(row[key] for row in rows)


def best_score(rows: list[Row]) -> str:
    """Of cleanlab's three, the one whose mean is highest."""
    return max(SCORES, key=lambda score: average(rows, score))


def seconds(value: float) -> str:
    return f"{value:.2g}" if value < 10 else f"{value:.0f}"


def markdown(head: list[str], rows: Sequence[list[str]]) -> str:
    """Numbers stand to the right."""
    marks = ["---" if cell[0].isalpha() else "---:" for cell in rows[0]]
    lines = [head, marks, *rows]
    return "\n".join(f"| {' | '.join(line)} |" for line in lines)


def ranking() -> str:
    """Average precision beside cleanlab's."""
    rows = [
        [
            SET_LABELS[name],
            f"{average(some, 'samples'):,.0f}",
            f"{average(some, 'wrong', 100):.1f}",
            spread(some, "average_precision"),
            spread(some, best_score(some)),
            f"{average(some, 'rate', 100):.1f}",
            f"{average(some, 'cleanlab_rate', 100):.1f}",
            f"{seconds(average(some, 'cpu_seconds'))} / {seconds(average(some, 'cleanlab_cpu_seconds'))}",
        ]
        for (name,), some in by(read("real"), "set").items()
    ]
    head = ["", "samples", "wrong, %", "AP, ours", "AP, cleanlab", "estimated, %", "cleanlab, %", "CPU s"]
    return markdown(head, rows)


def cleaning() -> str:
    """What training and cleaning come to, beside cleanlab's."""

    def both(some: list[Row], key: str) -> str:
        return f"{average(some, key):,.0f} / {average(some, f'cleanlab_{key}'):,.0f}"

    rows = [
        [
            SET_LABELS[name],
            spread(some, "accuracy", 1, 100),
            spread(some, "clean_learning_accuracy", 1, 100),
            f"{average(some, 'flagged'):,.0f}",
            both(some, "wrong_left"),
            both(some, "wrong_relabelled"),
        ]
        for (name,), some in by(read("real"), "set").items()
    ]
    return markdown(["", "accuracy, ours", "CleanLearning", "flagged", "wrong left", "wrong if relabelled"], rows)


def photos() -> str:
    """All of CIFAR-10N: one seed, so no spread."""

    def both(some: list[Row], ours: str, theirs: str, digits: int, scale: float = 1) -> str:
        return f"{average(some, ours, scale):.{digits}f} / {average(some, theirs, scale):.{digits}f}"

    rows = [
        [
            SET_LABELS[name],
            f"{average(some, 'wrong', 100):.1f}",
            both(some, "rate", "cleanlab_rate", 1, 100),
            both(some, "average_precision", best_score(some), 3),
            both(some, "accuracy", "clean_learning_accuracy", 1, 100),
            f"{average(some, 'wrong_left'):,.0f} / {average(some, 'cleanlab_wrong_left'):,.0f}",
            f"{seconds(average(some, 'cpu_seconds'))} / {seconds(average(some, 'cleanlab_cpu_seconds'))}",
        ]
        for (name,), some in by(read("real-photos"), "set").items()
    ]
    return markdown(["", "wrong, %", "estimated, %", "AP", "accuracy, %", "wrong left", "CPU s"], rows)


def parts() -> str:
    """The average precision of each part of the method, on each set."""
    return by_part(lambda some: spread(some, "average_precision"))


def accuracies() -> str:
    """The same for the accuracy in per cent, and the seconds."""
    return by_part(lambda some: spread(some, "accuracy", 1, 100), with_seconds=True)


def by_part(cell: Callable[[list[Row]], str], *, with_seconds: bool = False) -> str:
    groups = by(read("real-parts"), "part", "set")
    names, sets = (list(dict.fromkeys(key[i] for key in groups)) for i in (0, 1))
    rows = []
    for part in names:
        rows.append([part, *(cell(groups[part, s]) for s in sets)])
        if with_seconds:
            rows[-1].append(seconds(sum(average(groups[part, s], "cpu_seconds") for s in sets)))
    return markdown(["", *(SET_LABELS[s] for s in sets), *["CPU s, all four"] * with_seconds], rows)


def intervals() -> str:
    """How many intervals of the noise rate hold the truth, and how wide they are."""
    found = read("real-intervals")

    def row(label: str, some: list[Row]) -> list[str]:
        width = median(one["high"] - one["low"] for one in some)
        return [label, str(len(some)), str(sum(one["held"] for one in some)), f"{width:.2f}"]

    parted = [[one for one in found if kind_of(one) == kind] for kind in KINDS]
    rows = [row(label, some) for label, some in zip(KIND_LABELS, parted, strict=True)]
    return markdown(["labels", "audits", "interval holds the truth", "median width"], [*rows, row("all", found)])


def kind_of(row: Row) -> tuple[str, str]:
    if row["labels"] == "given":
        return "given", "photos" if row["set"] in PHOTOS else "texts"
    return ("clean", "") if row["labels"] == "clean" else ("drawn", "")


def reviews() -> str:
    """Of simulated reviews: how often the interval held, and how wide it was."""
    rows = [
        [
            REVIEWED_LABELS.get(row["case"], row["case"]),
            f"{100 * row['wrong']:.1f} %",
            f"{row['average_precision']:.2f}",
            f"{100 * row['holds']:.0f} %",
            f"{row['width']:.3f}",
            f"{row['blind_width']:.3f}",
            f"{row['ratio']:.2f}",
        ]
        for row in read("checked")
    ]
    head = ["", "wrong", "AP", "interval holds", "width", "width, random sample", "ratio"]
    return markdown(head, rows)


def learners() -> str:
    """Average precision of each learner on tables, and which of them the choice took."""
    rows = []
    for (table, noise, rate), some in by(read("learners"), "table", "noise", "rate").items():
        chosen = [row["chosen"] for row in some]
        names = ", ".join(f"{name} {chosen.count(name)}" for name in dict.fromkeys(sorted(chosen)))
        taken = [row | {"taken": row[f"{row['chosen']}_average_precision"]} for row in some]
        each = [spread(some, f"{name}_average_precision") for name in ("linear", "network", "trees")]
        rows.append([f"{table}, {noise} {rate}", *each, spread(taken, "taken"), names])
    return markdown(["", "linear", "network", "trees", "what `auto` took", "how often"], rows)


AUDIT_LABELS = {
    "digits": "digits, 1,797 images of 8×8 (`--npz`)",
    "breast cancer": "breast cancer, 569 rows of a table",
    "wine": "wine, 178 rows of a table",
    "20 Newsgroups": "20 Newsgroups, 11,296 texts, 20 classes",
    **{f"photos, {name}": f"4,000 photos, CIFAR-10N {name}" for name in ("aggre", "rand1", "worst")},
}


def audits() -> str:
    """What the command finds in files as people have them."""
    rows = []
    for row in read("own-data"):
        low, high = (100 * bound for bound in row["interval"])
        estimate = f"{100 * row['estimated']:.1f} %"
        if not low <= 100 * row["wrong"] <= high:
            estimate = f"**{estimate}**"
        shares = (row[key] for key in ("precision", "recall", "first_100"))
        rows.append(
            [
                AUDIT_LABELS[row["case"]],
                row["learner"],
                f"{100 * row['wrong']:.1f} %",
                f"{estimate} ({low:.1f}–{high:.1f})",
                f"{row['average_precision']:.3f}",
                f"{row['suspects']:,}",
                *("–" if share is None else f"{share:.2f}" for share in shares),
                f"{100 * row['left']:.1f} %",
                f"{100 * row['relabelled']:.1f} %",
                f"{row['seconds']:.0f}",
            ]
        )
    head = ["", "learner", "wrong", "estimated (interval)", "AP", "suspects", "precision", "recall", "first 100"]
    return markdown([*head, "wrong in `cleaned.csv`", "if relabelled", "seconds"], rows)


TABLES: dict[str, Callable[[], str]] = {
    one.__name__: one
    for one in (ranking, cleaning, photos, parts, accuracies, intervals, reviews, learners, audits)
}
