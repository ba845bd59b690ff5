"""What a report reads of run folders: which there are, what is refused, how runs are grouped and named."""

import json
from dataclasses import fields

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from safetensors.numpy import save_file

from coteach.labels.ledger import suspects
from coteach.noise import corrupt
from coteach.report import losses, read
from coteach.report.curves import curve
from coteach.report.groups import SHOWN_SETTINGS, groups_of
from coteach.report.labels import confusion, corrected_labels, pair_counts, row_shares
from coteach.report.read import find_runs, read_run
from coteach.report.tables import took
from coteach.runs.experiment import Experiment
from report_runs import SAMPLES, accuracy, changed_experiment, write_run

# ---- finding ---------------------------------------------------------------------------------------------------


def test_folders_of_runs_are_searched_for_finished_ones_and_each_is_found_once(tmp_path):
    for name in ("a", "b/c", "b/d"):
        write_run(tmp_path / name)
    write_run(tmp_path / "b" / "half", reached=2)
    write_run(tmp_path / ".hidden" / "x")
    (tmp_path / "other").mkdir()
    (tmp_path / "other" / "config.toml").write_text("not = 'ours'")
    places = (str(tmp_path), str(tmp_path / "a"), str(tmp_path / "b" / ".." / "a"))
    found, unfinished = find_runs(places)
    assert [path.relative_to(tmp_path).as_posix() for path in found] == ["a", "b/c", "b/d"]
    assert [path.name for path in unfinished] == ["half"]
    assert find_runs((str(tmp_path / "b" / "half"),)) == ([tmp_path / "b" / "half"], [])


@pytest.mark.parametrize(
    "place, words",
    [
        ("gone", "there is no folder"),
        ("empty", "no finished run"),
        ("half", "name the unfinished half/run itself"),
    ],
)
def test_places_without_a_finished_run_are_refused(place, words, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    (tmp_path / "empty").mkdir()
    write_run(tmp_path / "half" / "run", reached=2)
    with pytest.raises(ValueError, match=words):
        find_runs((place,))


# ---- reading ---------------------------------------------------------------------------------------------------


def test_a_run_is_read_with_all_it_has(tmp_path):
    run = read_run(write_run(tmp_path / "run", tau=0.3))
    assert (run.experiment.method, run.experiment.tau, run.experiment.seeds) == ("coteaching", 0.3, (1, 2))
    assert len(run.rows) == len(run.losses or []) == 12
    assert run.summary is not None
    assert list(run.opinions) == [1, 2]
    assert run.truth_known
    assert not read_run(write_run(tmp_path / "clean", noise="none")).truth_known


def test_a_run_may_have_any_seed_that_an_experiment_takes(tmp_path):
    run = read_run(write_run(tmp_path / "run", seeds=(-1, 2**62)))
    assert {row["seed"] for row in run.rows} == {row["seed"] for row in run.losses or []} == {-1, 2**62}
    assert sorted(run.opinions) == [-1, 2**62]


@pytest.mark.parametrize(
    "seconds, words", [(0.2, "1 second"), (3.0, "3 seconds"), (119.9, "120 seconds"), (150.0, "2.5 minutes")]
)
def test_how_long_a_run_took_is_said_in_words(seconds, words, tmp_path):
    run = read_run(write_run(tmp_path / "run"))
    assert run.summary is not None
    run.summary["seconds"] = seconds
    assert took(run) == f"Took {words}, with whatever was trained together with it"


def test_a_run_without_a_ledger_is_none_the_worse(tmp_path):
    run = read_run(write_run(tmp_path / "run", ledger=False))
    assert run.losses is None
    assert run.opinions == {}
    (tmp_path / "run" / "noise.safetensors").unlink()
    assert read_run(tmp_path / "run").noise is None


def test_a_line_that_was_being_written_is_left_out_of_an_unfinished_run_only(tmp_path):
    for name, finished in (("half", False), ("whole", True)):
        folder = write_run(tmp_path / name, reached=None if finished else 3)
        for file in ("metrics.jsonl", "losses.jsonl"):
            with (folder / file).open("a") as out:
                out.write('{"seed": 1, "ep')
        if finished:
            with pytest.raises(ValueError, match=r"metrics\.jsonl is damaged"):
                read_run(folder)
        else:
            assert len(read_run(folder).rows) == len(read_run(folder).losses or []) == 6


def test_settings_of_another_version_are_left_out(tmp_path):
    folder = write_run(tmp_path / "run")
    changed_experiment(folder, from_the_future=3)
    assert read_run(folder).experiment.method == "coteaching"


ODD = ["<b>", [], [[]], True, {"x": "y"}, float("inf"), float("nan"), 10**400]


def test_a_summary_with_anything_else_is_named(tmp_path):
    folder = write_run(tmp_path / "run")
    path = folder / "summary.json"
    sound = json.loads(path.read_text())
    for name, is_sound in read.SUMMARY.items():
        for value in ODD:
            if not is_sound(value):
                path.write_text(json.dumps(sound | {name: value}))
                with pytest.raises(ValueError, match=rf"summary\.json is damaged: it has no sound {name}\.$"):
                    read_run(folder)
    assert not any(read.is_number(value) or read.is_count(value) for value in ODD)


def test_a_row_with_anything_else_is_named(tmp_path):
    folder = write_run(tmp_path / "run")
    path = folder / "metrics.jsonl"
    lines = path.read_text().splitlines()
    for name, is_sound in read.METRICS_ROW.items():
        for value in ODD:
            if not is_sound(value):
                odd = json.dumps(json.loads(lines[4]) | {name: value})
                path.write_text("\n".join([*lines[:4], odd, *lines[5:]]) + "\n")
                with pytest.raises(ValueError, match=rf"metrics\.jsonl is damaged: line 5 has no sound {name}\.$"):
                    read_run(folder)


@pytest.mark.parametrize("changes", [{"dataset": 3}, {"loss": ["a"]}, {"tau": "much"}, {"seeds": ["a"]}])
def test_settings_of_the_wrong_type_are_named(changes, tmp_path):
    folder = write_run(tmp_path / "run")
    path = folder / "config.toml"
    ((name, value),) = changes.items()
    rest = [line for line in path.read_text().splitlines() if not line.startswith(f"{name} = ") or "[" in line]
    text = "\n".join(rest).replace("seeds = [\n    1,\n    2,\n]\n", "" if name == "seeds" else "seeds = [1, 2]\n")
    path.write_text(text.replace("[experiment]", f"[experiment]\n{name} = {json.dumps(value)}"))
    with pytest.raises(ValueError, match=r"config\.toml is damaged"):
        read_run(folder)


@pytest.mark.parametrize(
    "tensors",
    [
        {"quality": np.zeros(3, np.float32), "suggested": np.zeros(3, int)},
        {"quality": np.zeros(SAMPLES, np.float32), "suggested": np.full(SAMPLES, 4)},
        {"quality": np.zeros(SAMPLES, np.float32), "suggested": np.full(SAMPLES, -1)},
        {"quality": np.full(SAMPLES, np.nan, np.float32), "suggested": np.zeros(SAMPLES, int)},
        {"quality": np.zeros(SAMPLES, int), "suggested": np.zeros(SAMPLES, int)},
        {"quality": np.zeros(SAMPLES, np.float32), "suggested": np.zeros(SAMPLES)},
        {"quality": np.zeros(SAMPLES, np.float32)},
    ],
)
def test_opinions_of_other_samples_or_classes_are_named(tensors, tmp_path):
    folder = write_run(tmp_path / "run")
    save_file(tensors, folder / "opinions" / "seed-2.safetensors")
    with pytest.raises(ValueError, match=r"seed-2\.safetensors is damaged"):
        read_run(folder)


# ---- names -----------------------------------------------------------------------------------------------------


def test_runs_are_grouped_by_data_and_noise_and_named_by_what_sets_them_apart(tmp_path):
    some = {
        "a": {"method": "coteaching"},
        "b": {"method": "coteaching", "loss": "gce"},
        "c": {"method": "standard", "fidelity": "authors", "tau": 0.3},
        "d": {"method": "coteaching", "noise": "symmetric"},
        "e": {"method": "coteaching", "loss": "gce", "seeds": (7,)},
        "f": {"method": "never heard of"},
    }
    runs = []
    for name, experiment in some.items():
        runs.append(read_run(write_run(tmp_path / name, **(experiment | {"method": "coteaching"}))))
        object.__setattr__(runs[-1].experiment, "method", experiment["method"])
    pair, symmetric = groups_of(runs)
    assert (pair.title, symmetric.title) == ("digits, pair 40 %", "digits, symmetric 40 %")
    names = {run.folder.name: name for name, run in pair.runs.items()}
    assert names == {
        "a": "Co-teaching",
        "b": "Co-teaching, gce, b",
        "c": "Standard, authors, τ 0.3",
        "e": "Co-teaching, gce, e",
        "f": "never heard of",
    }
    assert list(pair.runs)[0] == "Standard, authors, τ 0.3", "in the order of the paper's tables"
    assert pair.common == symmetric.common == {"epochs": "epochs 6"}


def test_a_name_can_tell_every_setting_that_decides_a_result():
    """A setting that is new is in the plan's or the title's words, or only about where and how fast a run is."""
    in_titles = {"dataset", "method", "noise", "rate", "seeds"}
    how = {"device", "stack", "compile", "group", "ledger", "data_dir", "out", "resume", "tensorboard"}
    assert set(SHOWN_SETTINGS) == {f.name for f in fields(Experiment)} - in_titles - how


def test_a_name_means_the_same_with_every_noise_of_a_data_set(tmp_path):
    write_run(tmp_path / "a", loss="gce")
    write_run(tmp_path / "b", loss="gce", noise="symmetric")
    write_run(tmp_path / "c", noise="symmetric")
    pair, symmetric = groups_of([read_run(tmp_path / name) for name in "abc"])
    assert (pair.data, pair.noise, list(pair.runs)) == ("digits", "pair 40 %", ["Co-teaching, gce"])
    assert list(symmetric.runs) == ["Co-teaching", "Co-teaching, gce"], "as usual first"


def test_other_data_of_the_same_name_are_another_group(tmp_path):
    for name in ("a", "b"):
        write_run(tmp_path / name, dataset="own")
    config = (tmp_path / "b" / "config.toml").read_text().replace("abab", "cdcd")
    (tmp_path / "b" / "config.toml").write_text(config)
    titles = [group.title for group in groups_of([read_run(tmp_path / name) for name in ("a", "b")])]
    assert titles == ["own data abababab, pair 40 %", "own data cdcdcdcd, pair 40 %"]


# ---- numbers ---------------------------------------------------------------------------------------------------


def test_a_curve_is_a_table_of_seeds_and_epochs(tmp_path):
    epochs, values = curve(read_run(write_run(tmp_path / "run")), "test_accuracy")
    assert epochs == [1, 2, 3, 4, 5, 6]
    np.testing.assert_allclose(values, [[100 * accuracy(seed, epoch) for epoch in epochs] for seed in (1, 2)])
    one = read_run(write_run(tmp_path / "one", method="standard"))
    assert np.isnan(curve(one, "disagreement")[1]).all()


def test_of_an_unfinished_run_the_finished_seeds_count_or_else_what_all_have(tmp_path):
    folder = write_run(tmp_path / "run", reached=4)
    path = folder / "metrics.jsonl"
    rows = [json.loads(line) for line in path.read_text().splitlines()]
    path.write_text("".join(json.dumps(row) + "\n" for row in rows[:-1]))  # seed 2 has not reached the fourth
    epochs, values = curve(read_run(folder), "test_accuracy")
    assert (epochs, values.shape) == ([1, 2, 3], (2, 3))
    more = [json.dumps(rows[0] | {"epoch": epoch}) + "\n" for epoch in (5, 6)]  # seed 1 is finished
    path.write_text("".join(json.dumps(row) + "\n" for row in rows[:-1]) + "".join(more))
    epochs, values = curve(read_run(folder), "test_accuracy")
    assert (epochs, values.shape) == ([1, 2, 3, 4, 5, 6], (1, 6))


labels = st.lists(st.integers(0, 3), min_size=1, max_size=30)


@pytest.mark.slow
@given(labels, st.floats(0, 1), st.randoms(use_true_random=False))
def test_believed_labels_are_those_of_the_suspects(given_labels, share, random):
    given_M = np.array(given_labels)
    quality_M = np.array([random.choice((0.1, 0.2, 0.5)) for _ in given_labels])
    suggested_M = np.array([random.randrange(4) for _ in given_labels])
    found = suspects(given_M, quality_M, suggested_M, share)
    expected = given_M.copy()
    expected[found.index] = found.suggested
    np.testing.assert_array_equal(corrected_labels(given_M, quality_M, suggested_M, share), expected)


@given(st.lists(st.tuples(st.integers(0, 2), st.integers(0, 2)), max_size=40))
def test_counts_and_shares_of_pairs(pairs):
    rows, columns = (np.array([pair[i] for pair in pairs], int) for i in (0, 1))
    counts = pair_counts(rows, columns, 3)
    assert counts.tolist() == [[pairs.count((i, j)) for j in range(3)] for i in range(3)]
    for row, share in zip(counts, row_shares(counts), strict=True):
        np.testing.assert_allclose(share, row / row.sum() if row.sum() else np.full(3, np.nan))


@pytest.mark.parametrize("kind", ["pair", "symmetric"])
def test_a_ledger_that_knows_the_truth_finds_the_flips_that_were_drawn(kind, tmp_path):
    run = read_run(write_run(tmp_path / "run", noise=kind))
    assert run.noise is not None
    object.__setattr__(run.noise, "nominal_rate", run.noise.rate)  # as many as there are
    true = np.arange(SAMPLES) % 4
    assert corrupt(true, kind, 0.4, 4).sha256 == run.noise.sha256
    counts = confusion(run)
    assert counts.sum() == 2 * SAMPLES
    np.testing.assert_array_equal(counts, 2 * pair_counts(run.noise.labels, true, 4))
    np.testing.assert_allclose(row_shares(counts.T), row_shares(pair_counts(true, run.noise.labels, 4)))


# ---- losses ----------------------------------------------------------------------------------------------------


@given(st.integers(0, 300), st.integers(1, 30))
def test_some_epochs_are_spread_over_all(n, most):
    some = losses.evenly_spaced(n, most).tolist()
    assert len(some) == min(n, most)
    assert some == sorted(set(some))
    if n > 1 and most > 1:
        assert (some[0], some[-1]) == (0, n - 1)
        assert max(np.diff(some)) - min(np.diff(some)) <= 1


histogram = st.lists(st.integers(0, 3), min_size=losses.LOSS_BINS, max_size=losses.LOSS_BINS).map(np.array)


@given(histogram, histogram)
def test_how_well_losses_tell_wrong_from_right(right, wrong):
    if right.sum() and wrong.sum():
        frame = losses.Frame(1, right, wrong, True)
        of_right, of_wrong = (np.repeat(np.arange(losses.LOSS_BINS), counts) for counts in (right, wrong))
        larger = (of_wrong[:, None] > of_right).mean() + (of_wrong[:, None] == of_right).mean() / 2
        assert losses.wrong_is_larger(frame) == pytest.approx(larger)


@pytest.mark.parametrize(
    "place, words", [(0, "below 0.00013"), (losses.LOSS_BINS - 1, "above 24"), (32, "1.2"), (24, "0.12")]
)
def test_a_median_in_words(place, words):
    counts = np.zeros(losses.LOSS_BINS, int)
    counts[place] = 5
    assert losses.median_words(counts) == words


def test_frames_sum_over_seeds_and_say_what_they_show(tmp_path):
    run = read_run(write_run(tmp_path / "run"))
    frames = losses.frames_of(run)
    assert [frame.epoch for frame in frames] == [1, 2, 3, 4, 5, 6]
    assert run.noise is not None
    assert {int(frame.right.sum()) for frame in frames} == {4 * int(run.noise.clean.sum())}
    assert "in 100.0 % of pairs" in losses.medians(frames[-1], True)
    assert losses.medians(frames[-1], False).startswith("median ")
    assert "wrong" not in losses.medians(frames[-1], False)


def heights_of(outline: str) -> list[float]:
    steps = outline[len("M0 150V") :].removesuffix("V150").split("V")
    return [float(step.partition("h")[0]) for step in steps]


def test_a_histogram_is_drawn_to_scale():
    right, wrong = np.zeros(losses.LOSS_BINS, int), np.zeros(losses.LOSS_BINS, int)
    right[3], wrong[5] = 8, 2
    drawn = losses.histogram(losses.Frame(1, right, wrong, True), True)
    assert list(drawn.bars) == ["right", "wrong"]
    assert drawn.cuts == []
    assert [text.words for text in drawn.texts] == ["0.01", "0.1", "1", "< 0.00013", "≥ 24", "80 %", "0"]
    assert heights_of(drawn.bars["wrong"]) == [150.0] * 5 + [112.5] + [150.0] * (losses.LOSS_BINS - 6)


@pytest.mark.parametrize("place", [0, losses.LOSS_BINS - 1])
def test_an_open_bin_that_would_dwarf_the_others_is_cut_off_and_told(place):
    right, wrong = np.zeros(losses.LOSS_BINS, int), np.zeros(losses.LOSS_BINS, int)
    right[place], right[10], wrong[20] = 88, 4, 8
    frame = losses.Frame(1, right, wrong, True)
    assert losses.cut_off(frame, True) == {place: "88 % right"}
    assert losses.cut_off(frame, False) == {place: "88 %"}
    drawn = losses.histogram(frame, True)
    assert [cut.text.words for cut in drawn.cuts] == ["88 % right"]
    assert "8 %" in [text.words for text in drawn.texts], "the scale ends with the highest inner bin"
    right[place] = 12  # is not far above 8
    assert losses.cut_off(frame, True) == {}
    assert losses.top_of({"right": right, "wrong": wrong}) == 12


@given(histogram, histogram, st.integers(0, 50), st.integers(0, 50), st.booleans())
def test_of_all_bars_only_open_ones_leave_the_scale_and_those_are_marked(right, wrong, first, last, known):
    right, wrong = right.copy(), wrong.copy()
    right[0], wrong[-1] = first, last
    frame = losses.Frame(1, right, wrong, True)
    parts = losses.shown_counts(frame, known)
    top = losses.top_of(parts)
    outside = {
        place
        for counts in parts.values()
        for place, height in enumerate(heights_of(losses.outline(counts, top)))
        if not 0 <= height <= losses.HEIGHT
    }
    assert outside == set(losses.cut_off(frame, known)) <= {0, losses.LOSS_BINS - 1}
    highest = max(int(counts.max()) for counts in parts.values())
    assert top == max(1, highest) if not outside else highest > losses.CUT_ABOVE * top
