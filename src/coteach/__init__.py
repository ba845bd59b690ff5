"""Train classifiers that survive wrong labels.

Where to start:

- `RobustClassifier`: a scikit-learn classifier for labels of your own; it also tells which are wrong.
- `rules.weights`: the one line that a training loop of your own needs.
- `run(Experiment(...))`: compare methods on public data, as the command `coteach run` does.

The public names are loaded when they are first used, so that `import coteach` is quick.
"""

from typing import Any

_WHERE = {
    "Dataset": "coteach.data",
    "Experiment": "coteach.runs.experiment",
    "LOSSES": "coteach.losses",
    "METHODS": "coteach.methods",
    "Method": "coteach.methods",
    "Phase": "coteach.methods",
    "Plan": "coteach.plan",
    "RobustClassifier": "coteach.classifier",
    "Rule": "coteach.rules",
    "register_loss": "coteach.methods",
    "register_method": "coteach.methods",
    "register_network": "coteach.networks",
    "run": "coteach.runs.run",
    "run_together": "coteach.runs.run",
}
_MODULES = ("data", "losses", "networks", "noise", "rules", "schedules")

__all__ = [*sorted(_WHERE), *_MODULES]
__version__ = "0.1.0"


def __getattr__(name: str) -> Any:
    from importlib import import_module

    if name in _WHERE:
        return getattr(import_module(_WHERE[name]), name)
    if name in _MODULES:
        return import_module(f"coteach.{name}")
    raise AttributeError(f"module 'coteach' has no attribute {name!r}")


def __dir__() -> list[str]:
    return [*__all__, "__version__"]
