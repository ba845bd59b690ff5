"""Quick start: train a classifier on partly wrong labels, and list the suspects.

For anyone with an array of samples, an array of labels, and doubts about the labels. Half a minute on two cores:

    . .venv/bin/activate  # made by `make demo`
    python examples/quick_start.py

Prints how many labels are wrong (true and estimated), the test accuracy with and without Co-teaching, and the ten
labels that are trusted least.
"""

from sklearn.datasets import load_digits
from sklearn.model_selection import train_test_split

import coteach


def main(epochs: int = 40, samples: int = 1797) -> None:
    x, truth = load_digits(return_X_y=True)
    x, x_test, truth, y_test = train_test_split(x[:samples], truth[:samples], test_size=0.25, random_state=0)

    # Yours come as they are. Here 40 % of right labels are made wrong, so that we can see what was found.
    noise = coteach.noise.corrupt(truth, "symmetric", 0.4, seed=1)
    y = noise.labels

    classifier = coteach.RobustClassifier(epochs=epochs, random_state=0).fit(x, y)
    low, high = classifier.noise_estimate_.interval
    print(f"wrong labels: {noise.rate:.1%}, estimated {classifier.noise_rate_:.1%} ({low:.1%} to {high:.1%})")

    plain = coteach.RobustClassifier("standard", noise_rate=0, epochs=epochs, random_state=0).fit(x, y)
    print(f"test accuracy: {classifier.score(x_test, y_test):.1%}")
    print(f"the same network trained on all labels: {plain.score(x_test, y_test):.1%}")

    suspects = classifier.suspects()  # as many as there are wrong labels, by the estimate; the worst first
    found = (~noise.clean[suspects.index]).mean()
    print(f"suspects: {len(suspects)}, of which {found:.1%} are indeed wrong; the first ten:")
    for i in range(10):
        sample, quality = suspects.index[i], suspects.quality[i]
        print(f"  sample {sample:4}: given {suspects.given[i]}, suggested {suspects.suggested[i]}", end="")
        print(f" (in truth {truth[sample]}), quality {quality:.3f}")


if __name__ == "__main__":
    main()
