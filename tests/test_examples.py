"""Every example runs on little data and does what its docstring says; what it shows is checked on the way."""

import importlib.util
import os
import re
import subprocess
import sys
from pathlib import Path
from types import ModuleType

import pytest
import torch

import coteach
import test_rules
from coteach import losses, names
from coteach.methods import METHODS
from tiny import PLAN, problem, run_fit

pytestmark = pytest.mark.usefixtures("nothing_stays_registered")

ROOT = Path(__file__).parents[1]
EXAMPLES = sorted(path.stem for path in (ROOT / "examples").glob("*.py"))
HEAVY = ("hugging_face", "lightning_loop")  # to import
TINY: dict[str, dict] = {
    "quick_start": {"epochs": 2, "samples": 700},
    "own_network": {"epochs": 1, "samples": 100, "width": 2},
    "grid_search": {"epochs": 1, "samples": 120, "hidden": ((4,),), "noise_rates": (0.0, 0.3)},
    "table": {"epochs": 5, "samples": 200},
    "many_devices": {"epochs": 2, "samples": 200},
    "new_rule": {"epochs": 2, "seeds": (1,)},
    "own_loop": {"epochs": 10, "samples": 200},
    "lightning_loop": {"epochs": 2, "samples": 200},
    "hugging_face": {"epochs": 1, "samples": 60},
    "text_dicts": {"epochs": 1, "samples": 50},
    "image_folder": {"epochs": 5, "samples": 200},
    "texts": {"epochs": 5, "samples": 100},
}
PRINTED = {
    "quick_start": r"wrong labels: \d\d\.\d%, estimated .*test accuracy.*suspects: \d+.*sample .*quality 0\.\d{3}",
    "own_network": r"of the pair: ([\d.]+%).*network 0: .*network 1: .*read back from its file: \1",
    "grid_search": r"rate': 0\.0.*rate': 0\.3.*60 labels, .* below \d+\.\d points.*best: .*on right labels",
    "table": r"test accuracy.*line \d+: given (benign|malignant), suggested (?!\1)",
    "new_rule": r"coteaching: .*coteaching_hard: .*% of the labels",
    "own_loop": r"standard: epoch 10 of 10\nstandard: [\d.]+%; .*coteaching: epoch 10 .*coteaching: [\d.]+%; of",
    "lightning_loop": r"coteaching: [\d.]+%; of its 9 first suspects \d+% are wrong",
    "hugging_face": r": given (\w+), suggested (?!\1)\w+.*accuracy [\d.]+%; \d+% of the 6 first suspects",
    "many_devices": r"[\d.]+ % by 1 processes",
    "text_dicts": r"standard: [\d.]+% .*coteaching: [\d.]+% ",
    "image_folder": r"audit --images .*given (\d), suggested (?!\1).*audit --apply.*wrong labels: .*% in ",
    "texts": r"audit --table .*letter \d+: given (\w+), suggested (?!\1).*\d+ of \d+ suspects have a wrong",
}


def example(name: str) -> ModuleType:
    spec = importlib.util.spec_from_file_location(f"examples_{name}", ROOT / f"examples/{name}.py")
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


@pytest.mark.filterwarnings("ignore:less than half the usual share")  # as it should on so few samples
@pytest.mark.parametrize(
    "name", [pytest.param(name, marks=pytest.mark.slow) if name in HEAVY else name for name in EXAMPLES]
)
def test_an_example_runs_and_prints_what_it_promises(name, capsys, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    torch.manual_seed(0)
    example(name).main(**TINY[name])
    assert re.search(PRINTED[name], capsys.readouterr().out, re.DOTALL)
    assert not list(tmp_path.iterdir())


@pytest.mark.parametrize(
    "name", [pytest.param(name, marks=pytest.mark.slow) if name in HEAVY else name for name in EXAMPLES]
)
def test_a_docstring_says_for_whom_how_long_and_what_is_printed(name):
    text = example(name).__doc__ or ""
    assert re.search(r"^For ", text, re.MULTILINE)
    assert re.search(r"(seconds|minute) on two cores", text)
    assert re.search(r"^Prints ", text, re.MULTILINE)
    assert re.search(
        rf"^    \. \.venv/bin/activate .*\n    (python|torchrun) .*examples/{name}\.py", text, re.MULTILINE
    )


def test_the_table_of_examples_has_them_all():
    page = (ROOT / "examples/README.md").read_text("utf-8")
    assert sorted(re.findall(r"^\| \[`(\w+)\.py`\]\(\1\.py\)", page, re.MULTILINE)) == EXAMPLES


# ---- a rule of one's own --------------------------------------------------------------------------------------


def test_the_new_rule_has_the_properties_of_any_rule(monkeypatch):
    """Those that tests/test_rules.py asks of every registered one."""
    rule = example("new_rule").RULE
    assert rule in test_rules.every_rule().values()
    monkeypatch.setattr(test_rules, "RULES", {"coteaching_hard": rule})
    test_rules.test_runs_never_look_at_each_other()
    test_rules.test_the_order_in_the_batch_does_not_matter_without_ties()
    test_rules.test_a_rule_is_pure()
    test_rules.test_a_networks_losses_matter_to_whom_it_hands_its_picks()


def test_the_new_rule_leaves_out_the_largest_losses_and_the_easiest_tenth():
    loss = torch.stack([torch.arange(40.0), torch.arange(40.0).flip(0)])[:, None].double()
    batch = coteach.rules.Batch(torch.zeros(2, 1, 40, 3), loss, torch.full((1, 1), 0.725, dtype=torch.float64))
    picked = example("new_rule").RULE(batch)[:, 0]
    assert picked[1].nonzero().flatten().tolist() == list(range(2, 29))  # by network 0's losses
    assert picked[0].nonzero().flatten().tolist() == list(range(11, 38))


@pytest.mark.slow
def test_the_registry_tests_a_method_that_is_registered_before_collection():
    command = [sys.executable, "-m", "pytest", "-p", "new_rule", "-p", "no:cacheprovider", "-q"]
    done = subprocess.run(
        [*command, "tests/test_train_apart.py", "-k", "coteaching_hard"],
        cwd=ROOT,
        env=os.environ | {"PYTHONPATH": os.pathsep.join(["examples", "src"])},
        capture_output=True,
        text=True,
    )
    assert done.returncode == 0, done.stdout
    assert int(re.findall(r"(\d+) passed", done.stdout)[0]) >= 3


# ---- registering ----------------------------------------------------------------------------------------------


def test_a_registered_method_is_known_to_experiment_and_classifier(dataset, tmp_path):
    example("new_rule")
    experiment = coteach.Experiment(method="coteaching_hard", epochs=2, tau=0.2, out=tmp_path / "run")
    assert coteach.run(experiment, dataset).summary["method"] == "coteaching_hard"
    classifier = coteach.RobustClassifier("coteaching_hard", noise_rate=0.2, epochs=2, random_state=0)
    assert len(classifier.fit(dataset.x_train.numpy(), dataset.y_train.numpy()).networks_) == 2
    assert names.METHOD_MEANINGS["coteaching_hard"] == "Co-teaching without the easiest tenth"


def test_a_registered_loss_goes_with_every_method():
    def halved(logits_NRBC, target_NRB):
        return losses.cross_entropy(logits_NRBC, target_NRB) / 2

    assert coteach.register_loss("halved", halved) is halved
    coteach.Experiment(loss="halved").check()
    for name in ("standard", "coteaching", "coteaching_plus"):
        plan = coteach.Plan(epochs=3, batch_size=16, warmup=1, loss="halved")
        assert all(phase.loss is halved for phase in METHODS[name].phases(plan))
        assert run_fit(problem(), METHODS[name], plan)[1][0][-1]["train_loss"] > 0


def test_names_that_are_taken_are_refused():
    with pytest.raises(ValueError, match="'coteaching' already: give yours another name"):
        coteach.register_method(coteach.Method("coteaching", 2, METHODS["jocor"].phases))
    with pytest.raises(ValueError, match="'gce' already"):
        coteach.register_loss("gce", losses.cross_entropy)
    assert METHODS["coteaching"].phases(PLAN)[0].rule is coteach.rules.coteaching


# ---- a loop of one's own --------------------------------------------------------------------------------------


@pytest.mark.slow
@pytest.mark.parametrize("name, options", [("own_loop", {"epochs": 60}), ("text_dicts", {"epochs": 12})])
def test_picks_in_a_loop_of_ones_own_survive_wrong_labels(name, options):
    accuracy = example(name).main(**options)
    assert accuracy["coteaching"] > accuracy["standard"] + 0.05


def test_an_own_loop_on_own_rules():
    found = example("own_loop").main(epochs=1, samples=200, rules=("mentornet", "coteaching_plus", "jocor"))
    assert found.keys() == {"mentornet", "coteaching_plus", "jocor"}


def test_the_text_model_is_not_told_by_padding():
    module = example("text_dicts")
    model = module.TinyTextModel().eval()
    alone = model(**module.encode(["bread and butter"])).logits
    beside = model(**module.encode(["bread and butter", "anchor and boat and tide and mast and pier"])).logits
    torch.testing.assert_close(alone[0], beside[0])
