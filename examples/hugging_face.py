"""Hugging Face: a pair of transformers in `Trainer`, on a `datasets.Dataset` with partly wrong labels.

For people who fine-tune with `transformers`. Half a minute on two cores, after `pip install 'coteach[hf]'`:

    . .venv/bin/activate  # made by `make demo`
    python examples/hugging_face.py

Prints the accuracy on right labels, and the texts whose labels are doubted most, with a suggestion for each.

The model is made from a configuration and the tokenizer is a hash, so that nothing is downloaded. With yours,
`build` is `lambda: AutoModelForSequenceClassification.from_pretrained(NAME, num_labels=3)`, `encode` calls
`AutoTokenizer.from_pretrained(NAME)`, and `padded` is `DataCollatorWithPadding(tokenizer)`.
"""

import random
import tempfile
import zlib

import datasets
import numpy as np
import torch
from transformers import BertConfig, BertForSequenceClassification, EvalPrediction, Trainer, TrainingArguments

import coteach
from coteach.hf import CoteachCallback, with_index

NOISE_RATE = 0.2
TOPICS = {
    "kitchen": "bake boil bread butter dough fry garlic knead onion oven pepper recipe salt simmer stew whisk",
    "garden": "bloom compost hedge leaf mulch petal plant prune rake root rose seed shovel soil sprout weed",
    "harbour": "anchor boat buoy cargo crane crew deck dock ferry mast pier port sail ship tide wharf",
}
WORDS = 500


def main(epochs: int = 8, samples: int = 900) -> dict[str, float]:
    """Accuracy on right labels, and the share of wrong ones among the first suspects."""
    torch.set_num_threads(1)  # such a tiny model takes longer when it is shared out; leave it out for yours
    datasets.disable_progress_bars()
    truth = texts(samples, seed=0)
    noise = coteach.noise.corrupt(truth["label"], "symmetric", NOISE_RATE, n_classes=3)
    labels = iter(noise.labels.tolist())
    given = truth.map(lambda row: {"label": next(labels)})  # yours come as they are

    train, test = with_index(given), texts(300, seed=1)
    pair = coteach.Pair(build)
    callback = CoteachCallback("coteaching", noise_rate=NOISE_RATE)
    with tempfile.TemporaryDirectory() as folder:
        trainer = Trainer(
            model=pair,
            args=arguments(folder, epochs),
            train_dataset=train,
            eval_dataset=test,
            data_collator=callback.collator(padded),
            compute_loss_func=callback.loss,
            callbacks=[callback],
            preprocess_logits_for_metrics=callback.ensemble,
            compute_metrics=accuracy_of,
        )
        trainer.train()
        accuracy = trainer.evaluate()["eval_accuracy"]
    checked = callback.annotate(train)  # with the columns label_quality and suggested_label

    name = checked.features["label"].int2str
    assert callback.ledger is not None
    worst = callback.ledger.suspects(share=0.1).index.tolist()
    for row in checked.select(worst[:3]):
        print(f"{row['text']!r}: given {name(row['label'])}, suggested {name(row['suggested_label'])}")
    wrong = sum(given[i]["label"] != truth[i]["label"] for i in worst) / len(worst)
    print(f"accuracy {accuracy:.1%}; {wrong:.0%} of the {len(worst)} first suspects are wrong")
    return {"accuracy": accuracy, "wrong": wrong}


def accuracy_of(evaluated: EvalPrediction) -> dict[str, float]:
    return {"accuracy": float((np.asarray(evaluated.predictions).argmax(-1) == evaluated.label_ids).mean())}


def arguments(folder: str, epochs: int) -> TrainingArguments:
    return TrainingArguments(
        folder, num_train_epochs=epochs, per_device_train_batch_size=16, learning_rate=2e-3, report_to=[],
        save_strategy="no", use_cpu=True, disable_tqdm=True, logging_strategy="no", seed=0,
    )  # fmt: skip


def build() -> torch.nn.Module:
    config = BertConfig(
        vocab_size=WORDS, hidden_size=32, num_hidden_layers=1, num_attention_heads=2, intermediate_size=32,
        max_position_embeddings=32, id2label=dict(enumerate(TOPICS)),
    )  # fmt: skip
    return BertForSequenceClassification(config)


def texts(n: int, seed: int) -> datasets.Dataset:
    """Sentences of common words with three of their topic."""
    draw = random.Random(seed)
    common = "a after all and at before day for good in it much near of old on one or the then there they to we"
    rows = []
    for _ in range(n):
        label = draw.randrange(len(TOPICS))
        words = draw.choices(list(TOPICS.values())[label].split(), k=3) + draw.choices(common.split(), k=5)
        draw.shuffle(words)
        rows.append({"text": " ".join(words), "label": label, **encode(words)})
    table = datasets.Dataset.from_list(rows)
    return table.cast_column("label", datasets.ClassLabel(names=list(TOPICS)))


def encode(words: list[str]) -> dict[str, list[int]]:
    ids = [1, *(2 + zlib.crc32(word.encode()) % (WORDS - 2) for word in words)]
    return {"input_ids": ids, "attention_mask": [1] * len(ids)}


def padded(rows: list[dict]) -> dict[str, torch.Tensor]:
    longest = max(len(row["input_ids"]) for row in rows)
    batch = {
        key: torch.tensor([row[key] + [0] * (longest - len(row[key])) for row in rows])
        for key in ("input_ids", "attention_mask")
    }
    return batch | {"labels": torch.tensor([row["label"] for row in rows])}


if __name__ == "__main__":
    main()
