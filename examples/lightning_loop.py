"""Lightning: the rule, the pair and the ledger in a LightningModule of twenty lines.

For people whose training is a LightningModule. A quarter of a minute on two cores, after
`pip install 'coteach[lightning]'`:

    . .venv/bin/activate  # made by `make demo`
    python examples/lightning_loop.py

Prints the test accuracy with 40 % of the labels wrong, and how many of the first suspects are really wrong.
"""

import logging
import warnings
from collections.abc import Callable
from typing import Any

import lightning
import torch
from sklearn.datasets import load_digits
from torch import Tensor, nn
from torch.utils.data import DataLoader, TensorDataset

import coteach

NOISE_RATE = 0.4


class Robust(lightning.LightningModule):
    """Nothing here knows of digits: `build` makes one of your networks."""

    def __init__(self, build: Callable[[], nn.Module], samples: int, epochs: int, noise_rate: float):
        super().__init__()
        self.pair = coteach.Pair(build)
        self.ledger = coteach.Ledger(samples)
        self.selection = coteach.Selection("coteaching", noise_rate, epochs=epochs, ledger=self.ledger)

    def training_step(self, batch: list[Tensor], batch_idx: int) -> Tensor:
        index, x, y = batch
        return self.selection(self.pair(x), y, index)

    def on_train_epoch_end(self) -> None:
        self.selection.next_epoch()

    def configure_gradient_clipping(
        self, optimizer: Any, gradient_clip_val: Any = None, gradient_clip_algorithm: Any = None
    ) -> None:
        if gradient_clip_val:  # each network by its own norm
            self.pair.clip_gradients(gradient_clip_val)

    def configure_optimizers(self) -> torch.optim.Optimizer:
        return torch.optim.Adam(self.pair.parameters(), 0.005)


def main(epochs: int = 40, samples: int = 1797) -> dict[str, float]:
    """Test accuracy, and the share of wrong labels among the suspects."""
    for name in ("lightning.pytorch", "lightning.fabric"):
        logging.getLogger(name).setLevel(logging.ERROR)
    warnings.filterwarnings("ignore", module="lightning")  # its advice on workers, which digits do not need
    x, truth = (torch.from_numpy(a[:samples]) for a in load_digits(return_X_y=True))
    x, half = x.float() / 16, samples // 2
    given = torch.from_numpy(coteach.noise.corrupt(truth[:half], "symmetric", NOISE_RATE, n_classes=10).labels)
    loader = DataLoader(TensorDataset(torch.arange(half), x[:half], given), 64, shuffle=True, drop_last=True)
    lightning.seed_everything(0, verbose=False)
    model = Robust(
        lambda: nn.Sequential(nn.Linear(64, 128), nn.ReLU(), nn.Linear(128, 10)), half, epochs, NOISE_RATE
    )
    trainer = lightning.Trainer(
        max_epochs=epochs, accelerator="cpu", logger=False, enable_checkpointing=False,
        enable_progress_bar=False, enable_model_summary=False, gradient_clip_val=5.0,
    )  # fmt: skip
    trainer.fit(model, loader)
    accuracy = (model.pair.ensemble(x[half:]).argmax(-1) == truth[half:]).float().mean().item()
    worst = model.ledger.suspects(share=0.1)
    wrong = float((truth.numpy()[worst.index] != worst.given).mean())
    print(f"coteaching: {accuracy:.1%}; of its {len(worst)} first suspects {wrong:.0%} are wrong")
    return {"accuracy": accuracy, "wrong": wrong}


if __name__ == "__main__":
    main()
