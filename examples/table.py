"""A table with numbers, words and missing values, and a column of partly wrong labels.

For people with a CSV file. Ten seconds on two cores:

    . .venv/bin/activate  # made by `make demo`
    python examples/table.py

Prints the test accuracy and the rows whose label should be looked at. scikit-learn prepares the columns, as for
any other classifier in a pipeline. With pandas, pass the data frame to `fit` and give the columns by name.
"""

import csv
import io

import numpy as np
from sklearn.compose import make_column_transformer
from sklearn.datasets import load_breast_cancer
from sklearn.impute import SimpleImputer
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import OneHotEncoder

import coteach


def some_table(samples: int) -> str:
    """A CSV file such as people have: nine measurements, some missing, a word, and a diagnosis."""
    x, y = load_breast_cancer(return_X_y=True)
    random = np.random.default_rng(0)
    given = coteach.noise.corrupt(y, "symmetric", 0.15, seed=1).labels
    names = ("malignant", "benign")
    file = io.StringIO()
    writer = csv.writer(file)
    writer.writerow([*(f"measure {i}" for i in range(1, 10)), "size", "diagnosis", "truth"])
    for i in range(samples):
        numbers = ["" if random.random() < 0.03 else number for number in x[i, 1:10]]
        size = ("small", "medium", "large")[np.searchsorted((12, 15), x[i, 0])]
        writer.writerow([*numbers, size, names[given[i]], names[y[i]]])
    return file.getvalue()


def main(epochs: int = 40, samples: int = 569) -> None:
    _, *rows = csv.reader(io.StringIO(some_table(samples)))
    x = np.array([row[:10] for row in rows], dtype=object)
    x[:, :9] = np.where(x[:, :9] == "", "nan", x[:, :9]).astype(float)
    y, truth = np.array([row[10] for row in rows]), np.array([row[11] for row in rows])
    train = samples * 3 // 4

    columns = make_column_transformer(
        (SimpleImputer(strategy="median", add_indicator=True), list(range(9))),
        (OneHotEncoder(sparse_output=False, handle_unknown="ignore"), [9]),
    )
    model = make_pipeline(columns, coteach.RobustClassifier(noise_rate=0.15, epochs=epochs, random_state=0))
    model.fit(x[:train], y[:train])
    print(f"test accuracy: {model.score(x[train:], truth[train:]):.1%}")

    suspects = model[-1].suspects(share=0.02)
    for row, given, suggested in zip(suspects.index, suspects.given, suspects.suggested, strict=True):
        print(f"line {row + 2}: given {given}, suggested {suggested}, truth {truth[row]}")  # the header is line 1


if __name__ == "__main__":
    main()
