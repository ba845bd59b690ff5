"""The snippets of docs/own-loop.md run as they stand, with data and a model to go with them."""

import re
from pathlib import Path

import numpy as np
import pytest
import torch
from torch import nn
from torch.utils.data import DataLoader, TensorDataset

import coteach

PAGE = (Path(__file__).parents[1] / "docs/own-loop.md").read_text("utf-8")
LOOP, TRAINER, LIGHTNING, ADAPTERS = re.findall(r"^```python\n(.*?)^```$", PAGE, re.DOTALL | re.MULTILINE)

pytestmark = pytest.mark.slow


def in_the_loop() -> dict:
    torch.manual_seed(0)
    y = torch.arange(96) % 3
    train = TensorDataset(torch.arange(96), torch.eye(3)[y] + 0.1 * torch.randn(96, 3), y)
    names = {"build": lambda: nn.Linear(3, 3), "train": train, "loader": DataLoader(train, 32, shuffle=True)}
    exec(LOOP, names)
    return names


def test_the_loop():
    names = in_the_loop()
    assert names["probabilities"].shape == (32, 3)
    assert len(names["worst"]) == round(0.2 * 96)
    assert (names["ledger"].seen_NM == 3).all()


def test_hugging_face(tmp_path):
    datasets, transformers = pytest.importorskip("datasets"), pytest.importorskip("transformers")
    from tokenizers import Tokenizer, models

    from test_hf import arguments, bert, texts

    datasets.disable_progress_bars()
    assert len([line for line in TRAINER.splitlines() if line.strip()]) <= 15
    words = {"[PAD]": 0} | {str(i): i for i in range(1, 30)}
    tokenizer = transformers.PreTrainedTokenizerFast(
        tokenizer_object=Tokenizer(models.WordLevel(words, unk_token="[PAD]")), pad_token="[PAD]"
    )
    names = {
        "coteach": coteach, "build": bert, "train": texts(), "test": texts(), "tokenizer": tokenizer,
        "args": arguments(tmp_path, eval_strategy="epoch"),
    }  # fmt: skip
    exec(TRAINER, names)
    assert {"label_quality", "suggested_label"} <= set(names["train"].column_names)


@pytest.mark.filterwarnings("ignore:`isinstance.treespec:FutureWarning")  # Lightning's own, with a newer torch
@pytest.mark.filterwarnings("ignore:The 'train_dataloader' does not have many workers")
def test_lightning(tmp_path):
    lightning = pytest.importorskip("lightning")
    names = in_the_loop()
    exec(LIGHTNING, names)
    model = names["Robust"](names["build"], 96, 2)

    def trainer(epochs):
        return lightning.Trainer(
            max_epochs=epochs, accelerator="cpu", logger=False, enable_progress_bar=False, gradient_clip_val=1.0,
            enable_model_summary=False, default_root_dir=tmp_path, enable_checkpointing=False,
        )  # fmt: skip

    first = trainer(2)
    first.fit(model, names["loader"])
    assert (model.ledger.seen_NM == 2).all()
    assert model.selection.step == 6
    first.save_checkpoint(tmp_path / "last.ckpt", weights_only=True)
    state = torch.load(tmp_path / "last.ckpt", weights_only=True)["state_dict"]  # noqa: TID251 - Lightning's format
    again = names["Robust"](names["build"], 96, 2)
    again.load_state_dict(state)
    assert again.selection.step == 6
    assert np.array_equal(again.ledger.quality(), model.ledger.quality())


def test_adapters_on_one_frozen_backbone():
    names = {"coteach": coteach, "torch": torch, "backbone": nn.Linear(4, 8), "width": 8, "classes": 3}
    exec(ADAPTERS, names)
    assert names["adapters"](torch.zeros(2, 4)).shape == (2, 2, 3)
