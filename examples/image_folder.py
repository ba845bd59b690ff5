"""Find the images that lie in the wrong folder, and correct their labels.

For people with a folder for each class, such as `photos/cat/1.jpg`. A quarter of a minute on two cores:

    . .venv/bin/activate  # made by `make demo`
    python examples/image_folder.py          # all of it in a temporary folder
    python examples/image_folder.py FOLDER   # keeps it there: open FOLDER/audit/review.html in a browser

Prints what `coteach audit` prints, the first suspects, and how many labels are wrong before and after decisions
about them are applied. The images are scikit-learn's handwritten digits. A tenth of them is in a wrong
folder on purpose, which shows how many are found. Needs Pillow: pip install pillow
"""

import csv
import re
import sys
import tempfile
from pathlib import Path

import numpy as np
from PIL import Image
from sklearn.datasets import load_digits

import coteach
import coteach.cli


def make_photos(folder: Path, samples: int) -> dict[str, str]:
    """One folder of images for each class, as people have them; returns the truth about each."""
    x, classes = load_digits(return_X_y=True)
    given = coteach.noise.corrupt(classes[:samples], "symmetric", 0.1, n_classes=10, seed=1).labels
    truth = {}
    for number, label in enumerate(given):
        path = folder / str(label) / f"{number:04}.png"
        path.parent.mkdir(parents=True, exist_ok=True)
        Image.fromarray((x[number].reshape(8, 8) * 15).astype(np.uint8)).save(path)
        truth[path.relative_to(folder).as_posix()] = str(classes[number])
    return truth


def command(*words: str | Path) -> None:
    """What you would type in a terminal."""
    print("$ coteach", *words)
    coteach.cli.main([str(word) for word in words])


def decide(audit: Path, truth: dict[str, str]) -> Path:
    """In place of a person: what the review page exports once every suspect has been looked at."""
    mark = re.findall(r'"fingerprint": ?"(\w+)"', (audit / "review.html").read_text("utf-8"))[0]
    rows = []
    for suspect in read(audit / "suspects.csv"):
        right = truth[suspect["id"]]
        word = "keep" if right == suspect["given"] else "relabel"
        rows.append([suspect["id"], suspect["given"], word, right, mark])
    path = audit / "decisions.csv"
    with path.open("w", encoding="utf-8", newline="") as file:
        csv.writer(file).writerows([["id", "given", "decision", "label", "audit"], *rows])
    return path


def read(path: Path) -> list[dict[str, str]]:
    with path.open(encoding="utf-8", newline="") as file:
        return list(csv.DictReader(file))


def show(folder: Path, samples: int, epochs: int) -> None:
    truth, audit = make_photos(folder / "photos", samples), folder / "audit"

    # These images are 8 pixels wide; yours may be of any size, and 32 is a good start.
    command("audit", "--images", folder / "photos", "--size", "8", "--epochs", str(epochs), "--out", audit)

    suspects = read(audit / "suspects.csv")
    for row in suspects[:5]:
        print(f"{row['id']}: given {row['given']}, suggested {row['suggested']}, in truth {truth[row['id']]}")
    found = sum(truth[row["id"]] != row["given"] for row in suspects)
    print(f"{found} of {len(suspects)} suspects are in the wrong folder")

    command("audit", "--apply", decide(audit, truth), "--out", audit)

    before = sum(name.split("/")[0] != right for name, right in truth.items()) / len(truth)
    corrected = read(audit / "corrected.csv")
    after = sum(truth[row["id"]] != row["label"] for row in corrected) / len(corrected)
    print(f"wrong labels: {before:.1%} before, {after:.1%} in corrected.csv")


def main(folder: str | None = None, samples: int = 1797, epochs: int = 20) -> None:
    with tempfile.TemporaryDirectory() as temporary:
        show(Path(folder or temporary), samples, epochs)


if __name__ == "__main__":
    main(sys.argv[1] if sys.argv[1:] else None)
