"""Train classifiers that survive wrong labels.

Where to start:

- `RobustClassifier`: a scikit-learn classifier for your own labels; it also says which ones look wrong.
- `Pair`, `Selection` and `Ledger`: two networks, the rule and the memory, for your own training loop.
- `run(Experiment(...))`: compare methods on public data, like the command `coteach run`.

The public names are loaded when they are first used, so that `import coteach` is quick.
"""

from typing import Any

_WHERE = {
    "Dataset": "coteach.data",
    "Experiment": "coteach.runs.experiment",
    "LOSSES": "coteach.losses",
    "Ledger": "coteach.loops",
    "METHODS": "coteach.methods",
    "Method": "coteach.methods",
    "Pair": "coteach.loops",
    "Phase": "coteach.methods",
    "Plan": "coteach.plan",
    "RobustClassifier": "coteach.classifier",
    "Rule": "coteach.rules",
    "Selection": "coteach.loops",
    "SelectiveTrainingClassifier": "coteach.selective",
    "encode": "coteach.audit.features",
    "register_loss": "coteach.methods",
    "register_method": "coteach.methods",
    "register_network": "coteach.networks",
    "run": "coteach.runs.run",
    "run_together": "coteach.runs.run",
}
_MODULES = ("data", "losses", "networks", "noise", "rules", "schedules")
_WITH_EXTRAS = ("hf",)  # not in `from coteach import *`, which must not need them

__all__ = [*sorted(_WHERE), *_MODULES]
__version__ = "0.2.0"


def __getattr__(name: str) -> Any:
    from importlib import import_module

    if name in _WHERE:
        return getattr(import_module(_WHERE[name]), name)
    if name in _MODULES or name in _WITH_EXTRAS:
        return import_module(f"coteach.{name}")
    raise AttributeError(f"module 'coteach' has no attribute {name!r}")


def __dir__() -> list[str]:
    return [*__all__, "__version__"]
