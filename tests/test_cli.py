"""The command line as a user meets it: real processes for what only they show, `main` for the rest."""

import json
import os
import queue
import shlex
import signal
import subprocess
import sys
import time
import weakref
from dataclasses import fields, replace
from pathlib import Path

import pytest
import torch

import coteach
from coteach import cli
from coteach.cli import EXAMPLES, Reproduce, main
from coteach.cli.demo import what_a_mean_is_of
from coteach.cli.help import spelling
from coteach.paper.presets import preset_names
from coteach.runs.experiment import Experiment
from coteach.runs.folder import default_folder
from coteach.terminal import progress_bars

COMMAND = [sys.executable, "-m", "coteach"]
ROOT = Path(__file__).parents[1]


def shell(*arguments: str, cwd: Path) -> subprocess.CompletedProcess:
    return subprocess.run([*COMMAND, *arguments], cwd=cwd, capture_output=True, text=True, check=False)


@pytest.mark.slow
def test_the_contracts_command_writes_the_run_folder(tmp_path):
    words = "run --dataset digits --method coteaching_plus --noise pair --rate 0.45 --epochs 2 --seeds 1 2"
    done = shell(*words.split(), "--device", "cpu", "--out", "DIR", cwd=tmp_path)
    assert done.returncode == 0, done.stderr
    assert {"config.toml", "metrics.jsonl", "summary.json"} <= {f.name for f in (tmp_path / "DIR").iterdir()}
    assert len((tmp_path / "DIR" / "metrics.jsonl").read_text().splitlines()) == 4
    assert json.loads((tmp_path / "DIR" / "summary.json").read_text())["seeds"] == [1, 2]
    assert "written to DIR" in done.stdout
    assert "to fit 2 epochs, these defaults shrink: " in done.stdout


LOADED = """
import sys
from coteach.cli import main
try:
    main(sys.argv[1:])
except SystemExit as stop:
    print("code", stop.code)
heavy = ("torch", "numpy", "sklearn", "matplotlib", "scipy", "pooch")
print("heavy", [name for name in heavy if name in sys.modules])
"""


def loaded_by(*arguments: str, cwd: Path) -> subprocess.CompletedProcess:
    words = [sys.executable, "-c", LOADED, *arguments]
    return subprocess.run(words, cwd=cwd, capture_output=True, text=True, check=True)


@pytest.mark.parametrize("command", [[], ["run"], ["demo"], ["reproduce"], ["data"], ["report"]])
def test_help_loads_nothing_heavy(tmp_path, command):
    """Torch alone takes two seconds; what is not imported cannot be slow."""
    done = loaded_by(*command, "--help", cwd=tmp_path)
    assert "code 0\nheavy []" in done.stdout, done.stdout + done.stderr


def test_a_reader_that_goes_away_is_no_crash(tmp_path):
    command = f"{sys.executable} -m coteach run --help | head -n 1"
    done = subprocess.run(command, shell=True, cwd=tmp_path, capture_output=True, text=True, check=True)
    assert done.stdout.startswith("usage: coteach run")
    assert done.stderr == ""


def test_a_mistake_is_told_before_torch_is_loaded(tmp_path):
    done = loaded_by("run", "--method", "coteechin", cwd=tmp_path)
    assert "code 2\nheavy []" in done.stdout
    assert "did you mean 'coteaching'?" in done.stderr
    assert not list(tmp_path.iterdir())


@pytest.mark.parametrize(
    "words",
    [
        "run --rate 1",
        "run --epochs 3 --warmup 5",
        "run --epochs 3 --ramp 4",
        "run --batch-size 5000",
        "run --device cuda:7",
        "run --dataset cifar11",
        "run --fidelity papers",
        "run --network cnn7",
        "run --noise asymmetric",
        "demo --epochs 0",
        "demo --seeds 1 1",
        "data cifar11",
        "reproduce mnits",
        "reproduce mnist --epochs 0",
        "reproduce mnist --seeds 1 1",
        "reproduce mnist --only-report",
        "reproduce mnist --minutes 0",
        "reproduce mnist --processes 0",
        "reproduce mnist --processes 2 --ray",
    ],
)
def test_a_mistake_is_exit_code_2_and_one_line(words, tmp_path, monkeypatch, capsys):
    monkeypatch.chdir(tmp_path)
    with pytest.raises(SystemExit) as stop:
        main(words.split())
    assert stop.value.code == 2
    told = capsys.readouterr()
    assert told.err.startswith("coteach: ")
    assert told.err.count("\n") == 1
    assert "━" not in told.out  # no dead bar either
    assert not list(tmp_path.iterdir())


def test_a_misspelt_flag_is_exit_code_2(tmp_path, monkeypatch, capsys):
    monkeypatch.chdir(tmp_path)
    with pytest.raises(SystemExit) as stop:
        main(["run", "--methd", "standard"])
    assert stop.value.code == 2
    assert "--method" in capsys.readouterr().err


@pytest.mark.parametrize(
    "words, told",
    [
        ("run --epochs many", "--epochs is 'many': give a whole number."),
        ("run --batch-size 1.5", "--batch-size is '1.5': give a whole number."),
        ("run --rate much", "--rate is 'much': give a number."),
        ("run --tau None", "--noise-rate is 'None': give a number."),
        ("run --seeds 1 0.5", "--seeds is '0.5': give a whole number."),
        ("reproduce mnist --seeds 0.5", "--seeds is '0.5': give a whole number."),
        ("reproduce mnist --seeds None", "--seeds is 'None': give a whole number."),
        ("audit --noise-rate 20%", "--noise-rate is '20%': give a number or auto."),
        ("audit --learner tree", "--learner is 'tree' (did you mean 'trees'?): choose one of auto, network,"),
        ("run --keep-type 3", "--keep-type is '3': choose one of 1, 2."),
        ("run --no-ledger=yes", "--no-ledger takes no value: leave =yes out."),
        ("audit --images --open", "--images needs a value: --images DIR."),
        ("demo --seeds", "--seeds needs a value: --seeds N [N ...]."),
        ("audit photos", "'photos' stands after no flag: put one before it, such as --images, --table, --npz, or"),
        ("audit --images my photos", "'photos' stands after no flag: put one before it"),
        ("audit --images=", "--images is empty: give a file or folder."),
        ("audit --out --images photos", "--out needs a value: --out PATH."),
        ("predict model ''", "a path is empty: give a file or folder."),
        ("run --epochs 3 --epochs 5", "--epochs is given twice: leave one out."),
        ("audit --tau 0.1 --noise-rate 0.2", "--noise-rate is given twice: leave one out."),
        ("run --seeds 1,2", "--seeds is '1,2': put spaces between the numbers, as in --seeds 1 2 3."),
        ("reproduce mnist news", "coteach reproduce takes one name: leave 'news' out."),
        ("predict", "coteach predict needs MODEL: its --help has examples."),
    ],
)
def test_words_that_cannot_be_read_are_one_line_that_says_what_to_type(words, told, capsys):
    with pytest.raises(SystemExit) as stop:
        main(shlex.split(words))
    (line,) = capsys.readouterr().err.splitlines()
    assert stop.value.code == 2
    assert line.startswith(f"coteach: {told}")


def test_words_are_read_in_any_order_and_with_an_equals_sign():
    asked = cli.parsed(["predict", "--device=cpu", "model", "--out", "a=b.csv", "new", "newer"])
    assert (asked.model, asked.files) == (Path("model"), (Path("new"), Path("newer")))
    assert (asked.out, asked.device) == (Path("a=b.csv"), "cpu")
    assert cli.parsed("run --seeds -1 2 --keep-type 2 --lr -.5".split()) == Experiment(
        seeds=(-1, 2), keep_type=2, lr=-0.5
    )
    assert cli.parsed("audit --table t.csv --ignore a b --open".split()).ignore == ("a", "b")
    assert cli.parsed("audit --table t.csv --ignore a --ignore=b".split()).ignore == ("a", "b")
    assert cli.parsed(["audit", "--id", ""]).id == ""  # pandas writes a column without a name


def test_several_seeds_are_read_and_none_are_the_usual():
    assert cli.parsed("reproduce mnist --seeds 3 1".split()).seeds == (3, 1)
    assert cli.parsed("reproduce mnist".split()).seeds is None
    assert cli.parsed("run --seeds 3 1".split()).seeds == (3, 1)
    assert cli.parsed(["run"]).seeds == (1,)


@pytest.mark.parametrize(
    "epochs, which, best",
    [
        (1, "the only epoch", "best of these"),
        (2, "all 2 epochs", "best of these"),
        (11, "last ten epochs", "best of the last ten"),
    ],
)
def test_a_summary_says_which_epochs_it_is_of(epochs, which, best, tmp_path, capsys):
    words = f"run --method standard --seeds 1 2 --device cpu --epochs {epochs} --out".split()
    main([*words, str(tmp_path / "run")])
    shown = [line.split("  ")[0] for line in capsys.readouterr().out.splitlines()]
    assert f"test accuracy, {which}" in shown
    assert best in shown


def test_a_folder_in_use_is_exit_code_2(tmp_path, monkeypatch, capsys):
    monkeypatch.chdir(tmp_path)
    (tmp_path / "full").mkdir()
    (tmp_path / "full" / "file").touch()
    with pytest.raises(SystemExit) as stop:
        main(["run", "--epochs", "1", "--out", "full"])
    assert stop.value.code == 2
    assert "not empty" in capsys.readouterr().err


def test_the_usual_folder_is_named_after_rule_noise_reading_and_losses():
    experiment = Experiment(method="jocor", noise="pair", rate=0.4, loss="gce", warmup_loss="cross_entropy")
    assert default_folder(experiment) == Path("runs/digits-jocor-pair-0.4-paper-gce-after-cross_entropy")
    modern = Experiment("cifar10n-worst", "coteaching")
    assert default_folder(modern) == Path("runs/cifar10n-worst-coteaching-modern")
    assert default_folder(replace(modern, recipe="paper")) == Path("runs/cifar10n-worst-coteaching-paper")
    assert default_folder(Experiment()) == Path("runs/digits-coteaching_plus-symmetric-0.2-paper")


def test_runs_without_out_are_numbered(tmp_path, monkeypatch, capsys):
    monkeypatch.chdir(tmp_path)
    for _ in range(2):
        main("run --epochs 1 --method standard".split())
    folders = sorted(path.name for path in (tmp_path / "runs").iterdir())
    assert folders == ["digits-standard-symmetric-0.2-paper", "digits-standard-symmetric-0.2-paper-2"]


@pytest.mark.slow
def test_the_demo_ends_with_a_table_a_figure_and_its_folder(tmp_path):
    done = shell("demo", "--epochs", "2", "--seeds", "1", "2", "--out", "here", cwd=tmp_path)
    assert done.returncode == 0, done.stderr
    words = "coteaching_plus, f_correction_known, pair 45 %, symmetric 50 %, ±, gain, our default, *, figure: here"
    for word in words.split(", "):
        assert word in done.stdout
    assert (tmp_path / "here" / "demo.png").read_bytes().startswith(b"\x89PNG")
    assert (tmp_path / "here" / "demo.svg").read_text().count("<svg") == 1
    assert len(list((tmp_path / "here").glob("*/*/metrics.jsonl"))) == 2 * 12


def test_a_spread_is_named_where_there_is_one():
    assert (what_a_mean_is_of(1), what_a_mean_is_of(3)) == ("one seed", "mean ± std of 3 seeds")


def test_data_lists_what_is_there(tmp_path, monkeypatch, capsys):
    monkeypatch.setenv("COTEACH_DATA", os.fspath(tmp_path))
    main(["data"])
    listing = capsys.readouterr().out
    assert "digits" in listing
    assert "cifar100" in listing
    assert not list(tmp_path.iterdir())
    main(["data", "digits"])
    assert "1,297 / 500 samples of 64, 10 classes" in capsys.readouterr().out


@pytest.mark.parametrize(
    "finished, told", [(0, "no run of the demo was finished"), (2, "2 runs of the demo finished")]
)
@pytest.mark.parametrize("was_there", [True, False])
def test_ctrl_c_says_what_the_demo_leaves(was_there, finished, told, tmp_path, monkeypatch, capsys):
    if was_there:
        (tmp_path / "out").mkdir()

    def work(*_):
        for n in range(finished):
            (tmp_path / f"out/standard/{n}").mkdir(parents=True)
            (tmp_path / f"out/standard/{n}/summary.json").touch()
        raise KeyboardInterrupt

    monkeypatch.setattr("coteach.cli.demo.in_processes", work)
    with pytest.raises(SystemExit) as stop:
        main(["demo", "--out", str(tmp_path / "out")])
    assert stop.value.code == 130
    assert f"coteach: stopped; {told}" in capsys.readouterr().err
    assert (tmp_path / "out").exists() == (finished > 0 or was_there)


@pytest.mark.slow
def test_a_terminated_demo_leaves_no_process_behind(tmp_path):
    command = [*COMMAND, "demo", "--epochs", "2000", "--seeds", "1", "--out", "here"]
    demo = subprocess.Popen(command, cwd=tmp_path, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)
    while not list(tmp_path.glob("here/*/*/metrics.jsonl")):
        assert demo.poll() is None
        time.sleep(0.1)
    demo.terminate()
    _, errors = demo.communicate(timeout=60)  # ends only when nobody holds the pipes any more
    assert demo.returncode == 143
    assert "Traceback" not in errors


# ---- help -----------------------------------------------------------------------------------------------------

SUBCOMMANDS = sorted(cli.COMMANDS)


def help_of(command: str, monkeypatch, capsys) -> str:
    monkeypatch.setenv("COLUMNS", "80")
    with pytest.raises(SystemExit) as stop:
        main([*command.split(), "--help"])
    assert stop.value.code == 0
    return capsys.readouterr().out


def examples_in(text: str) -> list[str]:
    return [line.strip() for line in text.splitlines() if line.startswith("  coteach ")]


@pytest.mark.parametrize("command", ["", *SUBCOMMANDS])
def test_a_help_fits_the_screen_and_ends_with_examples(command, monkeypatch, capsys):
    text = help_of(command, monkeypatch, capsys)
    assert max(map(len, text.splitlines())) <= 80
    assert len(text.splitlines()) <= 60
    own = [example for example in examples_in(text) if example.startswith(f"coteach {command}".strip())]
    assert len(own) >= 2
    assert text.endswith(EXAMPLES[command])


@pytest.mark.parametrize("command", ["", *SUBCOMMANDS])
def test_what_a_help_says_to_type_is_understood(command, monkeypatch, capsys):
    for example in examples_in(help_of(command, monkeypatch, capsys)):
        asked = cli.parsed(example.split()[1:])
        if isinstance(asked, Experiment):  # the others look for the files that are named
            asked.check()
        if isinstance(asked, Reproduce) and asked.name is not None:
            assert asked.name in preset_names()


def test_examples_are_of_commands_that_there_are():
    assert sorted(EXAMPLES) == sorted(["", *SUBCOMMANDS])


@pytest.mark.parametrize("words", ["help run", "run -h", "run --epochs --help", "run --help=yes"])
def test_help_is_given_wherever_it_is_asked_for(words, monkeypatch, capsys):
    text = help_of("run", monkeypatch, capsys)
    with pytest.raises(SystemExit) as stop:
        main(words.split())
    assert stop.value.code == 0
    assert capsys.readouterr().out == text


def test_no_words_at_all_ask_for_help(monkeypatch, capsys):
    text = help_of("", monkeypatch, capsys)
    monkeypatch.setattr(sys, "argv", ["coteach"])
    with pytest.raises(SystemExit) as stop:
        main()
    assert stop.value.code == 0
    assert capsys.readouterr().out == text


@pytest.mark.parametrize("command", SUBCOMMANDS)
def test_the_whole_help_has_every_flag_with_its_text(command, monkeypatch, capsys):
    monkeypatch.setenv("COLUMNS", "300")
    with pytest.raises(SystemExit) as stop:
        main([command, "--help-all"])
    assert stop.value.code == 0
    text = capsys.readouterr().out
    kind, _ = cli.COMMANDS[command]
    for field in fields(kind):
        if flag := spelling(field):  # what has none is known by its place
            (line,) = (x for x in text.splitlines() if x.split()[:1] == [flag])
            assert len(line.split()) > 2, line
    assert "None" not in text


def test_what_is_not_in_the_short_help_is_counted(monkeypatch, capsys):
    shown = sum(line.startswith("  --") for line in help_of("run", monkeypatch, capsys).splitlines())
    assert f"{len(fields(Experiment)) - shown} more flags" in help_of("run", monkeypatch, capsys)


@pytest.mark.parametrize(
    "words, told",
    [
        ("run --epoch 5", "there is no flag --epoch (did you mean '--epochs'?)"),
        ("run -epochs 5", "there is no flag -epochs (did you mean '--epochs'?)"),
        ("run --epoch=5", "there is no flag --epoch (did you mean '--epochs'?)"),
        ("audit --image photos", "there is no flag --image (did you mean '--images'?)"),
        ("audit --rate 0.2", "there is no flag --rate (did you mean '--noise-rate'?)"),
        ("run --no-leger", "there is no flag --no-leger (did you mean '--no-ledger'?)"),
        ("run —epochs 5", "there is no flag —epochs (did you mean '--epochs'?)"),
        ("audit --csv t.csv", "there is no flag --csv: coteach audit --help-all lists them."),
        ("audit --images -photos", "there is no flag -photos (write ./ before a path that begins with a dash):"),
        ("predict model -- new", "there is no flag -- (write ./ before a path that begins with a dash):"),
        ("audt --images photos", "there is no command 'audt' (did you mean 'audit'?)"),
        ("--images photos", "there is no command '--images'"),
    ],
)
def test_a_misspelt_flag_is_one_line_with_the_nearest_name(words, told, capsys):
    with pytest.raises(SystemExit) as stop:
        main(words.split())
    assert stop.value.code == 2
    (line,) = capsys.readouterr().err.splitlines()
    assert line.startswith(f"coteach: {told}")


def test_a_command_needs_no_flags():
    assert cli.parsed(["run"]) == Experiment()


def test_the_same_words_go_with_every_command():
    assert cli.parsed(["run", "--noise-rate", "0.3"]).tau == 0.3
    assert cli.parsed(["run", "--noise_rate=0.3"]).tau == 0.3
    assert cli.parsed(["audit", "--tau", "0.3"]).noise_rate == 0.3
    assert cli.parsed(["audit", "--network=mlp"]).network == cli.parsed(["audit", "--module", "mlp"]).network
    assert cli.parsed(["run", "--module", "mlp", "--seed", "3"]) == Experiment(network="mlp", seeds=(3,))
    assert cli.parsed(["demo", "--seed", "3"]).seeds == (3,)
    assert cli.parsed(["audit", "--seeds", "3"]).seed == 3
    assert cli.parsed(["run", "--learning-rate", "0.1"]).lr == 0.1
    assert cli.parsed(["run", "--data_dir", "here"]).data_dir == Path("here")
    assert not cli.parsed(["run", "--no-ledger"]).ledger


def test_the_version_names_what_a_report_of_a_bug_needs(capsys):
    main(["--version"])
    told = capsys.readouterr().out
    assert told.startswith(f"coteach {coteach.__version__}, torch {torch.__version__}, Python 3.")
    for file, line in (
        ("pyproject.toml", f'version = "{coteach.__version__}"'),
        ("CITATION.cff", f"version: {coteach.__version__}"),
        ("CHANGELOG.md", f"## [{coteach.__version__}] - "),
    ):
        assert line in (ROOT / file).read_text("utf-8"), file
    for words in (["-V"], ["version"], ["run", "--version"]):
        main(words)
        assert capsys.readouterr().out == told


def test_a_mistake_is_followed_by_no_examples(capsys):
    with pytest.raises(SystemExit):
        main(["run", "--methd", "standard"])
    assert "examples:" not in capsys.readouterr().out


@pytest.mark.parametrize(
    "wait", [time.sleep, lambda seconds: queue.Queue().get(timeout=seconds)], ids=["sleep", "queue"]
)
@pytest.mark.parametrize("signum, code", [(signal.SIGINT, 130), (signal.SIGTERM, 143)])
def test_a_signal_that_python_drops_comes_again_and_wakes_a_call_that_waits(signum, code, wait, monkeypatch):
    after = []

    def work(command):
        thing = set()
        watched = weakref.ref(thing, lambda _: signal.raise_signal(signum))
        del thing  # here it is raised, and dropped
        after.append(watched)
        wait(20)
        after.append("never")

    monkeypatch.setitem(cli.CARRIED_OUT_BY, cli.Data, work)
    began = time.monotonic()
    with pytest.raises(SystemExit) as stop:
        cli.main(["data"])
    assert stop.value.code == code
    assert len(after) == 1
    assert time.monotonic() - began < 2


def test_without_a_bar_nothing_is_drawn(capsys):
    with progress_bars():
        pass
    assert capsys.readouterr().out == ""


def test_a_bar_says_what_is_left_of_epochs_that_take_minutes():
    now = 0.0
    with progress_bars() as bars:
        bars.get_time = lambda: now
        number = bars.add_task("coteaching", total=10, note="")
        for _ in range(3):
            now += 90
            bars.update(number, advance=1)
        assert bars.tasks[0].time_remaining == 7 * 90
