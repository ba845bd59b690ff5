"""Trusted samples beside a suspect, and the likeliest classes of one."""

import numpy as np

from coteach.audit.examples import AT_HAND, BESIDE, MOST_AT_HAND, trusted_examples
from coteach.audit.judge import MOST_LIKELY, likeliest_others
from coteach.labels.ledger import Suspects
from review_audits import made_up


def suspects_of(index: list[int], given: list[str], suggested: list[str]) -> Suspects:
    return Suspects(np.array(index, dtype=np.int64), np.array(given), np.array(suggested), np.zeros(len(index)))


def test_examples_are_trusted_of_good_quality_and_most_like_the_suspect():
    rng = np.random.default_rng(0)
    findings = made_up(["a", "b"], 400, 0, x=rng.normal(size=(400, 3)))
    samples, quality, trusted = findings.samples, rng.random(400), rng.random(400) < 0.8
    suspects = suspects_of([0, 1, 2], ["a", "b", "a"], ["b", "a", "b"])
    quality[:3], trusted[:3] = 1, True  # as of a page of samples to check
    found = trusted_examples(samples, suspects, trusted, quality)
    assert len(found.index) == 2 * AT_HAND
    assert trusted[found.index].all()
    assert not set(found.index.tolist()) & {0, 1, 2}
    for labels, lists in ((suspects.given, found.given), (suspects.suggested, found.suggested)):
        for name, places in zip(labels, lists, strict=True):
            assert len(set(places)) == BESIDE
            assert (samples.y[found.index[places]] == name).all()
    for c in "ab":
        better = np.median(quality[trusted & (samples.y == c)])
        assert (quality[found.index[samples.y[found.index] == c]] >= better - 0.02).all()
    x = samples.x[found.index]
    z = (x - x.mean(0)) / x.std(0)
    seen = (samples.x[0] - x.mean(0)) / x.std(0)
    alike = z @ seen / np.linalg.norm(z, axis=1)
    of_b = np.flatnonzero(samples.y[found.index] == "b")
    assert found.suggested[0] == of_b[np.argsort(-alike[of_b])[:3]].tolist()


def test_there_may_be_few_or_no_trusted_samples():
    findings = made_up(["a", "b"], 40, 0)
    trusted = np.isin(np.arange(40), [6, 8])  # both a
    found = trusted_examples(findings.samples, suspects_of([0], ["a"], ["b"]), trusted, np.ones(40))
    assert (found.index.tolist(), found.given, found.suggested) == ([6, 8], [[0, 1]], [[]])
    none = trusted_examples(findings.samples, suspects_of([], [], []), trusted, np.ones(40))
    assert (none.index.tolist(), none.given) == ([], [])


def test_pixels_are_not_compared_and_many_classes_have_few_examples():
    names = [f"{c:03d}" for c in range(151)]  # 3 does not divide that, and each third sample is a suspect
    findings = made_up(names, 3000, 1000, x=np.zeros((3000, 4, 4)))
    found = trusted_examples(findings.samples, findings.suspects, findings.trusted, np.ones(3000))
    assert len(found.index) <= MOST_AT_HAND
    assert {len(places) for places in found.given} == {BESIDE}


def test_the_likeliest_classes_begin_with_the_suggested_and_leave_the_given_out():
    p_NSC = np.array([[[0.1, 0.2, 0.6, 0.1], [0.1, 0.2, 0.6, 0.1]], [[0.5, 0.2, 0.2, 0.1], [0.1, 0.2, 0.6, 0.1]]])
    suspects = suspects_of([0, 1], ["a", "c"], ["d", "b"])
    likely_SK, p_SK = likeliest_others(p_NSC, np.array(list("abcd")), suspects)
    assert likely_SK.tolist() == [[3, 2, 1], [1, 0, 3]]
    assert np.allclose(p_SK, [[0.1, 0.4, 0.2], [0.2, 0.1, 0.1]])
    many = likeliest_others(np.ones((1, 2, 9)) / 9, np.array(list("abcdefghi")), suspects)[0]
    assert many.shape == (2, MOST_LIKELY)
