"""Hugging Face's Trainer with tiny models made from a configuration: pick for pick equal to a plain loop."""

import math
import shutil
import socket
from pathlib import Path

import numpy as np
import pytest
import torch
from torch import nn

import coteach
import hf_work
from coteach import rules, schedules

datasets = pytest.importorskip("datasets")
transformers = pytest.importorskip("transformers")
hf = pytest.importorskip("coteach.hf")

pytestmark = pytest.mark.slow
N, C = 48, 3


@pytest.fixture(autouse=True)
def quiet():
    transformers.utils.logging.set_verbosity_error()
    datasets.disable_progress_bars()


def bert() -> nn.Module:
    config = transformers.BertConfig(
        vocab_size=30, hidden_size=16, num_hidden_layers=1, num_attention_heads=2, intermediate_size=16,
        max_position_embeddings=16, num_labels=C, hidden_dropout_prob=0.0, attention_probs_dropout_prob=0.0,
    )  # fmt: skip
    return transformers.BertForSequenceClassification(config)


def vit() -> nn.Module:
    config = transformers.ViTConfig(
        image_size=8, patch_size=4, num_channels=1, hidden_size=16, num_hidden_layers=1, num_attention_heads=2,
        intermediate_size=16, num_labels=C, hidden_dropout_prob=0.0, attention_probs_dropout_prob=0.0,
    )  # fmt: skip
    return transformers.ViTForImageClassification(config)


def texts(labels=None, n=N):
    """Tokens of which the first tells the class; a text column, which no model takes."""
    random = np.random.default_rng(0)
    truth = np.arange(n) % C
    ids = [[int(1 + c), *random.integers(5, 30, random.integers(3, 8)).tolist()] for c in truth]
    features = datasets.Features(
        {
            "text": datasets.Value("string"),
            "input_ids": datasets.List(datasets.Value("int64")),
            "attention_mask": datasets.List(datasets.Value("int64")),
            "label": datasets.ClassLabel(names=["bread", "rose", "ship"]),
        }
    )
    rows = {
        "text": [" ".join(map(str, row)) for row in ids],
        "input_ids": ids,
        "attention_mask": [[1] * len(row) for row in ids],
        "label": (truth if labels is None else labels).tolist(),
    }
    return datasets.Dataset.from_dict(rows, features=features)


def images():
    random = np.random.default_rng(0)
    truth = np.arange(N) % C
    pixels = random.normal(size=(N, 1, 8, 8)).astype(np.float32) + truth[:, None, None, None]
    return datasets.Dataset.from_dict({"pixel_values": pixels.tolist(), "label": truth.tolist()})


def padded(samples: list) -> dict:
    """As a tokenizer pads."""
    longest = max(len(sample["input_ids"]) for sample in samples)
    batch = {
        key: torch.tensor([sample[key] + [0] * (longest - len(sample[key])) for sample in samples])
        for key in ("input_ids", "attention_mask")
    }
    return batch | {"labels": torch.tensor([sample["label"] for sample in samples])}


def arguments(folder: Path, **more):
    settings = {
        "num_train_epochs": 2, "per_device_train_batch_size": 8, "learning_rate": 0.003, "weight_decay": 0.0,
        "lr_scheduler_type": "constant", "optim": "adamw_torch", "report_to": [], "save_strategy": "no",
        "use_cpu": True, "disable_tqdm": True, "seed": 3, "max_grad_norm": 0.0,
    }  # fmt: skip
    return transformers.TrainingArguments(str(folder), **(settings | more))


class Recording:
    """A collator that remembers the batches of a training."""

    def __init__(self, inner):
        self.inner, self.batches = inner, []

    def __call__(self, samples):
        batch = self.inner(samples)
        self.batches.append({key: value.clone() for key, value in batch.items()})
        return batch


def picks_of(callback) -> list[torch.Tensor]:
    """The masks of every step, as the training goes."""
    found: list[torch.Tensor] = []
    inner = callback.loss

    def noting(*args, **kwargs):
        loss = inner(*args, **kwargs)
        if torch.is_grad_enabled():
            found.append(callback.selection.picked.clone())
        return loss

    callback.loss = noting
    return found


def plain_loop(build, batches, rule, noise_rate, ramp, clip=0.0, parts=1):
    """Two models, two optimisers, no Trainer; gradients of `parts` batches make a step."""
    models = [one.train() for one in coteach.Pair(build).networks]
    optimisers = [torch.optim.AdamW(model.parameters(), 0.003, weight_decay=0.0) for model in models]
    picks = []
    for first in range(0, len(batches), parts):
        step = first // parts + 1
        keep = schedules.keep_rate(step, noise_rate, ramp)
        for batch in batches[first : first + parts]:
            given = {key: value for key, value in batch.items() if key not in ("labels", "index")}
            logits = [model(**given).logits for model in models]
            weight_NB = rules.weights(rule, logits, batch["labels"], keep)
            picks.append(weight_NB > 0)
            for one, weight_B in zip(logits, weight_NB, strict=True):
                loss = nn.functional.cross_entropy(one, batch["labels"], reduction="none")
                ((weight_B * loss).sum() / parts).backward()
        for model, optimiser in zip(models, optimisers, strict=True):
            if clip:
                nn.utils.clip_grad_norm_(model.parameters(), clip)
            optimiser.step()
            optimiser.zero_grad()
    return models, picks


@pytest.mark.parametrize(
    "build, data, inner, options",
    [
        (bert, texts, padded, {}),
        (bert, texts, padded, {"max_grad_norm": 0.5}),
        (bert, texts, padded, {"gradient_accumulation_steps": 2}),
        (vit, images, None, {}),
    ],
    ids=["text", "clipped", "accumulated", "images"],
)
def test_a_trainer_is_a_plain_loop(build, data, inner, options, tmp_path):
    callback = hf.CoteachCallback("coteaching", noise_rate=0.3, ramp=4, window=8)
    picks = picks_of(callback)
    recording = Recording(callback.collator(inner))
    pair = coteach.Pair(build)
    args = arguments(tmp_path, **options)
    trainer = transformers.Trainer(
        model=pair, args=args, train_dataset=hf.with_index(data()), data_collator=recording,
        compute_loss_func=callback.loss, callbacks=[callback],
    )  # fmt: skip
    trainer.train()
    parts = options.get("gradient_accumulation_steps", 1)
    models, expected = plain_loop(
        build, recording.batches, "coteaching", 0.3, 4, options.get("max_grad_norm", 0.0), parts
    )
    assert len(picks) == len(expected) == 12
    assert all(torch.equal(mine, theirs) for mine, theirs in zip(picks, expected, strict=True))
    for mine, theirs in zip(pair.networks, models, strict=True):
        for p, q in zip(mine.parameters(), theirs.parameters(), strict=True):
            torch.testing.assert_close(p, q, rtol=1e-4, atol=1e-6)
    assert args.max_grad_norm == options.get("max_grad_norm", 0.0)
    assert (callback.ledger.seen_NM == 2).all()


def test_fifteen_lines_train_evaluate_and_mark_the_wrong_labels(tmp_path):
    truth = np.arange(480) % C
    labels = truth.copy()
    wrong = np.arange(0, 480, 7)
    labels[wrong] = (labels[wrong] + 1) % C
    train, test = hf.with_index(texts(labels, n=480)), texts()
    callback = hf.CoteachCallback("coteaching", noise_rate=1 / 7)
    trainer = transformers.Trainer(
        model=coteach.Pair(bert), args=arguments(tmp_path, num_train_epochs=4), train_dataset=train,
        eval_dataset=test, data_collator=callback.collator(padded), compute_loss_func=callback.loss,
        callbacks=[callback], preprocess_logits_for_metrics=callback.ensemble,
        compute_metrics=lambda p: {"accuracy": float((p.predictions.argmax(-1) == p.label_ids).mean())},
    )  # fmt: skip
    trainer.train()
    metrics = trainer.evaluate()
    assert metrics["eval_accuracy"] > 0.9
    p = torch.from_numpy(trainer.predict(test).predictions)
    assert p.shape == (N, C)
    torch.testing.assert_close(p.exp().sum(-1), torch.ones(N))
    given = torch.tensor(test["label"])
    assert metrics["eval_loss"] == pytest.approx(nn.functional.nll_loss(p, given).item(), rel=1e-3)
    marked = callback.annotate(train)
    assert marked.features["suggested_label"].names == ["bread", "rose", "ship"]
    quality = np.array(marked["label_quality"])
    found = np.argsort(quality)[: len(wrong)]
    assert len(set(found) & set(wrong)) >= 0.8 * len(wrong)
    suggested = np.array(marked["suggested_label"])
    assert (suggested[wrong] == truth[wrong]).mean() > 0.7
    assert callback.ledger.suspects(0.1).given[0] in ("bread", "rose", "ship")
    shuffled = callback.annotate(train.shuffle(seed=0).select(range(20)))
    for row in shuffled:
        assert row["label_quality"] == quality[row["index"]]


def test_one_model_with_the_ledger_is_enough_to_find_labels(tmp_path):
    callback = hf.CoteachCallback("standard", noise_rate=0.0)
    trainer = transformers.Trainer(
        model=bert(), args=arguments(tmp_path), train_dataset=hf.with_index(texts()),
        data_collator=callback.collator(padded), compute_loss_func=callback.loss, callbacks=[callback],
    )  # fmt: skip
    trainer.train()
    assert callback.ledger.seen_NM.shape == (1, N)
    assert len(np.unique(callback.ledger.quality())) > N // 2


@pytest.mark.parametrize("every", [4, 6], ids=["amid an epoch", "at its end"])
def test_a_training_goes_on_from_a_checkpoint(every, tmp_path):
    found = {}
    for name in ("whole", "stopped"):
        for attempt in range(2 if name == "stopped" else 1):
            callback = hf.CoteachCallback("coteaching", noise_rate=0.3, ramp=6)
            trainer = transformers.Trainer(
                model=coteach.Pair(bert),
                args=arguments(tmp_path / name, save_strategy="steps", save_steps=every),
                train_dataset=hf.with_index(texts()), data_collator=callback.collator(padded),
                compute_loss_func=callback.loss,
                callbacks=[callback, *([StopAt(every)] if name == "stopped" and not attempt else [])],
            )  # fmt: skip
            trainer.train(resume_from_checkpoint=bool(attempt))
        found[name] = callback
    assert found["stopped"].selection.step == 12
    assert np.allclose(found["stopped"].ledger.quality(), found["whole"].ledger.quality(), atol=1e-6)
    kept = [tmp_path / name / f"checkpoint-{step}" for step in (every, 2 * every)]
    shutil.copy(kept[0] / "coteach-0.safetensors", kept[1])  # of another step
    with pytest.raises(ValueError, match=f"is of step {every}, not {2 * every}"):
        trainer.train(resume_from_checkpoint=str(kept[1]))


class StopAt(transformers.TrainerCallback):
    def __init__(self, step):
        self.step = step

    def on_step_end(self, args, state, control, **kwargs):
        control.should_training_stop = state.global_step >= self.step


def test_a_torch_data_set_of_dicts_is_numbered_too(tmp_path):
    rows = [{"pixel_values": torch.full((1, 8, 8), float(i % C)), "labels": i % C} for i in range(16)]
    callback = hf.CoteachCallback("jocor", noise_rate=0.2)
    trainer = transformers.Trainer(
        model=coteach.Pair(vit), args=arguments(tmp_path), train_dataset=hf.with_index(rows),
        data_collator=callback.collator(), compute_loss_func=callback.loss, callbacks=[callback],
    )  # fmt: skip
    trainer.train()
    assert (callback.ledger.seen_NM == 2).all()


def test_a_pair_on_one_frozen_backbone_is_saved_and_goes_on(tmp_path):
    backbone = bert().bert.requires_grad_(False)

    def build():
        model = bert()
        model.bert = backbone
        return model

    pair = coteach.Pair(build)
    for begun in (False, True):  # the second callback takes over from the first
        callback = hf.CoteachCallback("coteaching", noise_rate=0.3)
        args = arguments(tmp_path, save_strategy="steps", save_steps=4, gradient_checkpointing=True)
        trainer_of(callback, tmp_path, model=pair, args=args).train(resume_from_checkpoint=begun)
    assert (callback.ledger.seen_NM == 2).all()


def test_a_transform_keeps_the_index_and_a_part_keeps_its_numbers(tmp_path):
    def transform(rows):
        return {"pixel_values": [torch.tensor(pixels) for pixels in rows["pixel_values"]], "labels": rows["label"]}

    whole = hf.with_index(images().with_transform(transform))
    part = whole.select(range(40, 48))
    callback = hf.CoteachCallback("coteaching", noise_rate=0.2)
    trainer_of(
        callback, tmp_path, model=coteach.Pair(vit), train_dataset=part, data_collator=callback.collator()
    ).train()
    marked = callback.annotate(callback.annotate(whole))
    quality = np.asarray(marked.with_format(None)["label_quality"])
    assert (quality[:40] == 0.5).all()
    assert (quality[40:] != 0.5).all()


def test_processes_whose_batches_were_filled_up(tmp_path):
    """Eighteen samples in batches of eight for two processes: the last are filled up with the first."""
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        port = free.getsockname()[1]
    torch.multiprocessing.spawn(hf_work.work, (2, port, str(tmp_path)), nprocs=2)
    seen = [np.load(tmp_path / f"{rank}.npy") for rank in range(2)]
    assert (seen[0] == seen[1]).all()
    assert seen[0].shape == (2, 18)
    assert (seen[0] >= 2).all()


# ---- wrong use ------------------------------------------------------------------------------------------------


def trainer_of(callback, folder, model=None, **changes):
    settings = {
        "model": model or coteach.Pair(bert), "args": arguments(folder), "train_dataset": hf.with_index(texts()),
        "data_collator": callback.collator(padded), "compute_loss_func": callback.loss, "callbacks": [callback],
    }  # fmt: skip
    return transformers.Trainer(**(settings | changes))


def test_wrong_use_gets_one_clear_sentence(tmp_path):
    with pytest.raises(ValueError, match="noise_rate is 1.5"):
        hf.CoteachCallback(noise_rate=1.5)
    callback = hf.CoteachCallback(noise_rate=0.2)
    with pytest.raises(ValueError, match="nothing was trained yet"):
        callback.annotate(texts())
    with pytest.raises(
        ValueError, match=r"the Trainer dropped the index: give train_dataset=coteach\.hf\.with_index"
    ):
        trainer_of(callback, tmp_path, train_dataset=texts()).train()
    with pytest.raises(ValueError, match=r"has a loss of its own: give compute_loss_func=callback\.loss"):
        trainer_of(callback, tmp_path, compute_loss_func=None).train()
    late = trainer_of(callback, tmp_path, callbacks=[])
    late.add_callback(callback)
    with pytest.raises(ValueError, match=r"the Trainer drops the index: give callbacks=\[callback\] when you"):
        late.train()
    with pytest.raises(ValueError, match="a batch has no labels: let the collator hand them over"):
        callback.loss(torch.zeros(2, 5, 3), None)
    unknown = trainer_of(hf.CoteachCallback(noise_rate=0.2), tmp_path, callbacks=[callback])
    with pytest.raises(ValueError, match=r"the Trainer does not know the callback: give callbacks=\[callback\]"):
        unknown.train()
    with pytest.raises(ValueError, match="logits of 1 network.* but coteaching compares two"):
        trainer_of(callback, tmp_path, model=bert()).train()
    with pytest.raises(ValueError, match="has a column index already"):
        hf.with_index(hf.with_index(texts()))
    with pytest.raises(ValueError, match="the data set has no length"):
        hf.with_index(texts().to_iterable_dataset())
    trained = hf.CoteachCallback(noise_rate=0.2)
    trainer_of(trained, tmp_path).train()
    with pytest.raises(ValueError, match="the data set has no column index"):
        trained.annotate(texts())


def test_where_gradients_cannot_be_clipped_apart_it_warns(tmp_path):
    callback = hf.CoteachCallback(noise_rate=0.2)
    args = arguments(tmp_path, max_grad_norm=1.0)
    args.fp16 = True
    with pytest.warns(UserWarning, match="the norm of both networks together.*set max_grad_norm=0 or bf16"):
        callback._take_over_clipping(args, coteach.Pair(bert))
    assert args.max_grad_norm == 1.0
    assert math.isclose(callback.max_norm, 0)
