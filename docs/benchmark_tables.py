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


SETTING_LABELS = {
    "coteaching, cross_entropy": "Co-teaching, cross-entropy",
    "coteaching, softmax_twice after cross_entropy": "Co-teaching, cross-entropy, then softmax twice",
    "coteaching, gce after cross_entropy": "Co-teaching, cross-entropy, then GCE",
    "coteaching, softmax_twice": "Co-teaching, softmax twice",
    "coteaching, memory": "Co-teaching, cross-entropy, memory 3",
    "coteaching, memory, balance": "Co-teaching, cross-entropy, memory 3, class balance 1",
    "coteaching, mixture": "Co-teaching, cross-entropy, mixture",
    "coteaching, guesses": "Co-teaching, cross-entropy, guesses 0.5",
    "mentornet": "MentorNet",
    "jocor": "JoCoR",
    "standard": "Standard",
    "standard, memory": "Standard, memory 3 (ELR)",
    "coteaching_plus": "Co-teaching+",
    "dividemix": "DivideMix",
}
DEFAULTS = {
    "defaults": "coteaching, softmax_twice after cross_entropy",
    "defaults-pixels": "coteaching, cross_entropy",
}


def defaults() -> str:
    """Settings on tables and embeddings, each beside the default."""
    return beside_default("defaults")


def pixels() -> str:
    """Settings of the modern recipe on images."""
    return beside_default("defaults-pixels")


def beside_default(name: str) -> str:
    """Mean differences ± standard error over problems and seeds; the default itself with its values."""
    rows, default = read(name), DEFAULTS[name]
    n_first, *_ = epochs = sorted({row["epochs"] for row in rows})
    groups = by(rows, "setting", "epochs")
    base = {about(row): row for row in rows if row["setting"] == default}

    def cell(setting: str, n: int, key: str, scale: float, digits: int) -> str:
        some = groups[setting, n]
        if setting == default:
            return f"**{average(some, key, scale):.{digits}f}**"
        gains = [scale * (row[key] - base[about(row)][key]) for row in some]
        error = f" ± {stdev(gains) / len(gains) ** 0.5:.{digits}f}" if len(gains) > 1 else ""
        return f"{mean(gains):+.{digits}f}{error}"

    def times(setting: str) -> str:
        some = groups[setting, n_first]
        return f"{mean(row['cpu_seconds'] / base[about(row)]['cpu_seconds'] for row in some):.1f}"

    columns = [(key, n, *form) for key, *form in GAINS for n in epochs]
    lines = [
        [
            f"**{SETTING_LABELS[setting]}**" if setting == default else SETTING_LABELS[setting],
            *(cell(setting, n, key, scale, digits) for key, n, _, scale, digits in columns),
            times(setting),
        ]
        for setting in SETTING_LABELS
        if (setting, epochs[0]) in groups
    ]
    head = ["", *(f"{label}, {n} epochs" for _, n, label, *_ in columns), "time"]
    return markdown(head, sorted(lines, key=lambda line: leading_number(line[1]), reverse=True))


GAINS = (
    ("held_out", "held-out labels", 100, 2),
    ("truth", "right labels", 100, 2),
    ("average_precision", "AP", 1, 3),
)


def about(row: Row) -> tuple:
    """What two settings have in common."""
    return row["problem"], row["recipe"], row["epochs"], row["seed"]


def leading_number(cell: str) -> float:
    """The default, in bold, is 0 beside itself."""
    return 0.0 if cell.startswith("**") else float(cell.split()[0])


RATE_LABELS = {
    "cifar10/none/0": "CIFAR-10, right labels",
    "cifar10/symmetric/0.5": "CIFAR-10 flipped, symmetric 50 %",
    "cifar10n-aggre": "CIFAR-10N aggre",
    "cifar10n-rand1": "CIFAR-10N rand1",
    "cifar10n-worst": "CIFAR-10N worst",
    "mnist/symmetric/0.2": "MNIST flipped, symmetric 20 %",
    "cifar100n": "CIFAR-100N",
}


def rates() -> str:
    """Estimates of the noise rate of 5,000 images, and what they do to accuracy."""
    rows = by([*read("people-planted"), *read("people-short")], "problem", "part")
    lines = []
    for problem, label in RATE_LABELS.items():
        (auto,), (short,) = rows[problem, "auto"], rows[problem, "short"]
        told = rows.get((problem, "told"))
        low, high = auto["interval"]
        lines.append(
            [
                label,
                f"{100 * auto['wrong']:.1f}",
                f"{100 * short['noise_rate']:.1f}",
                f"{100 * auto['noise_rate']:.1f} ({100 * low:.0f}–{100 * high:.0f})",
                f"{100 * auto['accuracy']:.1f}",
                "–" if told is None else f"{100 * told[0]['accuracy']:.1f}",
            ]
        )
    head = ["labels", "wrong, %", "confident joint, %", "with exchanged labels, % (interval)"]
    return markdown([*head, "accuracy, %", "with the true rate, %"], lines)


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
    for one in (
        ranking,
        cleaning,
        photos,
        parts,
        accuracies,
        intervals,
        reviews,
        learners,
        audits,
        defaults,
        pixels,
        rates,
    )
}
