"""The message about a misspelt name suggests the nearest one, and only one that is near."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from coteach import names
from coteach.names import ONLY_IN_RUNS, check_name, nearest

REGISTRIES = [names.METHOD_MEANINGS, names.NOISES, names.LOSS_MEANINGS]


@st.composite
def misspelt(draw):
    """A name as people write it, and the registry it is from."""
    registry = draw(st.sampled_from(REGISTRIES))
    right = draw(st.sampled_from(sorted(registry)))
    wrong = right.replace("_plus", draw(st.sampled_from(["_plus", "+", "-plus", " plus"])))
    wrong = wrong.replace("_", draw(st.sampled_from("-_ ")))
    return registry, right, draw(st.sampled_from([str.lower, str.upper, str.title]))(wrong)


@given(misspelt())
def test_another_spelling_of_a_name_finds_it(case):
    registry, right, wrong = case
    assert nearest(wrong, registry) == f" (did you mean {right!r}?)"


@given(st.sampled_from(sorted(names.METHOD_MEANINGS)), st.data())
def test_a_name_without_one_letter_finds_a_name_that_contains_the_rest(right, data):
    i = data.draw(st.integers(0, len(right) - 1))
    assert nearest(right[:i] + right[i + 1 :], [right, "xyz"]) == f" (did you mean {right!r}?)"


@pytest.mark.parametrize("wrong", ["hinge", "focal", "bootstrapping", "", "?"])
def test_what_is_like_no_loss_finds_none(wrong):
    with pytest.raises(ValueError, match="^there is no loss '.*': choose one of cross_entropy, "):
        check_name("loss", wrong, names.LOSS_MEANINGS)


@given(st.text("0123456789", max_size=12))
def test_what_shares_no_letter_with_any_name_finds_none(wrong):
    assert nearest(wrong, names.METHOD_MEANINGS) == ""


def test_a_suggestion_is_a_name_as_it_is_written():
    assert nearest("tiny imagenet", ["tiny-imagenet"]) == " (did you mean 'tiny-imagenet'?)"
    assert nearest("diagnosis", ["Diagnosis", "size"]) == " (did you mean 'Diagnosis'?)"


@pytest.mark.parametrize(
    "wrong, right, registry",
    [
        ("sym", "symmetric", names.NOISES),
        ("inst", "instance", names.NOISES),
        ("ce", "cross_entropy", names.LOSS_MEANINGS),
        ("CE", "cross_entropy", names.LOSS_MEANINGS),
        ("softmax", "softmax_twice", names.LOSS_MEANINGS),
        ("coteach", "coteaching", names.METHOD_MEANINGS),
        ("coteaching-p", "coteaching_plus", names.METHOD_MEANINGS),
        ("cpo", "coteaching_plus_own", names.METHOD_MEANINGS),
    ],
)
def test_the_beginning_or_the_initials_of_a_name_come_before_what_is_spelt_alike(wrong, right, registry):
    assert nearest(wrong, registry) == f" (did you mean {right!r}?)"


@pytest.mark.parametrize("name", ONLY_IN_RUNS)
def test_a_method_that_is_elsewhere_is_said_to_be_there(name):
    check_name("method", name, names.METHOD_MEANINGS)
    with pytest.raises(
        ValueError, match=f"method '{name}' is only for `coteach run`, because {ONLY_IN_RUNS[name]}:"
    ):
        check_name("method", name, ["coteaching"])
    with pytest.raises(ValueError, match="there is no network"):
        check_name("network", name, ["mlp"])
