"""Find texts with the wrong topic in a CSV file.

For people with a column of texts and a column of labels. A quarter of a minute on two cores:

    . .venv/bin/activate  # made by `make demo`
    python examples/texts.py          # all of it in a temporary folder
    python examples/texts.py FOLDER   # keeps it there: open FOLDER/audit/review.html in a browser

Prints what `coteach audit` prints, the first suspects with their texts, and how many of them are indeed wrong. The
texts are made up: common words with a few of their topic, since scikit-learn comes with no texts. Real ones are
harder. (To fine-tune your own text model on such labels, see text_dicts.py.)
"""

import csv
import random
import sys
import tempfile
from pathlib import Path

import coteach
import coteach.cli

TOPICS = {
    "kitchen": "bake boil bread butter dough fry garlic knead onion oven pepper recipe salt simmer stew whisk",
    "garden": "bloom compost hedge leaf mulch petal plant prune rake root rose seed shovel soil sprout weed",
    "harbour": "anchor boat buoy cargo crane crew deck dock ferry harbour mast pier port sail ship tide",
}
COMMON = (
    "a after all and at before day for good in it much near of old on one or the then there they to two we with"
)


def make_letters(path: Path, samples: int) -> dict[str, str]:
    """A table such as people have: a name for each row, a text, and a topic of which 15 % are wrong."""
    draw, topics = random.Random(0), list(TOPICS)
    truth = [draw.randrange(len(topics)) for _ in range(samples)]
    given = coteach.noise.corrupt(truth, "symmetric", 0.15, n_classes=len(topics), seed=1).labels
    with path.open("w", encoding="utf-8", newline="") as file:
        writer = csv.writer(file)
        writer.writerow(["letter", "body", "topic"])
        for i, topic in enumerate(truth):
            words = draw.choices(COMMON.split(), k=draw.randint(6, 12))
            words += draw.choices(TOPICS[topics[topic]].split(), k=draw.randint(2, 4))
            draw.shuffle(words)
            writer.writerow([f"letter {i}", " ".join(words), topics[given[i]]])
    return {f"letter {i}": topics[topic] for i, topic in enumerate(truth)}


def command(*words: str | Path) -> None:
    """What you would type in a terminal."""
    print("$ coteach", *words)
    coteach.cli.main([str(word) for word in words])


def show(folder: Path, samples: int, epochs: int) -> None:
    folder.mkdir(parents=True, exist_ok=True)
    table, audit = folder / "letters.csv", folder / "audit"
    truth = make_letters(table, samples)

    columns = "--label topic --text body --id letter".split()
    command("audit", "--table", table, *columns, "--epochs", str(epochs), "--out", audit)

    bodies = {row["letter"]: row["body"] for row in read(table)}
    suspects = read(audit / "suspects.csv")
    for row in suspects[:5]:
        print(f"{row['id']}: given {row['given']}, suggested {row['suggested']}: {bodies[row['id']]}")
    found = sum(truth[row["id"]] != row["given"] for row in suspects)
    print(f"{found} of {len(suspects)} suspects have a wrong topic")


def read(path: Path) -> list[dict[str, str]]:
    with path.open(encoding="utf-8", newline="") as file:
        return list(csv.DictReader(file))


def main(folder: str | None = None, samples: int = 600, epochs: int = 20) -> None:
    with tempfile.TemporaryDirectory() as temporary:
        show(Path(folder or temporary), samples, epochs)


if __name__ == "__main__":
    main(sys.argv[1] if sys.argv[1:] else None)
