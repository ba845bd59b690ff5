"""Fine-tuning text models whose batches are dicts (input_ids, attention_mask, labels) with Co-teaching's picks.

For people who fine-tune Hugging Face models on partly wrong labels. A quarter of a minute on two cores:

    . .venv/bin/activate  # made by `make demo`
    python examples/text_dicts.py

Prints the test accuracy after learning from all labels, and after Co-teaching, with 40 % of the labels wrong.

`TinyTextModel` and `encode` stand in for a transformer and its tokenizer. Called with the tensors of a batch by
name, the model answers with an object that has `.logits`. With transformers installed one line makes the models,

    new_model = lambda: AutoModelForSequenceClassification.from_pretrained(NAME, num_labels=3)

`encode` is `AutoTokenizer.from_pretrained(NAME)` called with `padding=True, return_tensors="pt"`, and the loop
stays as it is. Two models from one checkpoint differ in their new heads and in dropout, enough for Co-teaching.
"""

import random
import zlib
from collections.abc import Callable
from types import SimpleNamespace

import torch
import torch.nn.functional as F
from torch import Tensor, nn
from torch.utils.data import DataLoader

import coteach

NOISE_RATE = 0.4
TOPICS = {
    "kitchen": "bake boil bread butter dough fry garlic knead onion oven pepper recipe salt simmer stew whisk",
    "garden": "bloom compost hedge leaf mulch petal plant prune rake root rose seed shovel soil sprout weed",
    "harbour": "anchor boat buoy cargo crane crew deck dock ferry harbour mast pier port sail ship tide",
}
COMMON = (
    "a after all and at before day for good in it much near of old on one or the then there they to two we with"
)


class TinyTextModel(nn.Module):
    """Mean of word vectors, then two layers; the interface is that of AutoModelForSequenceClassification."""

    def __init__(self, n_words: int = 2000, width: int = 64, num_labels: int = len(TOPICS)) -> None:
        super().__init__()
        self.embedding = nn.Embedding(n_words, width)
        self.head = nn.Sequential(
            nn.Dropout(0.1), nn.Linear(width, width), nn.ReLU(), nn.Linear(width, num_labels)
        )

    def forward(self, input_ids: Tensor, attention_mask: Tensor) -> SimpleNamespace:
        words = self.embedding(input_ids) * attention_mask[..., None]
        return SimpleNamespace(logits=self.head(words.sum(1) / attention_mask.sum(1, keepdim=True)))


def encode(texts: list[str], n_words: int = 2000) -> dict[str, Tensor]:
    """As a tokenizer does: numbers of words, padded to the longest text, and a mask of what is no padding."""
    ids = [
        torch.tensor([1 + zlib.crc32(word.encode()) % (n_words - 1) for word in text.split()]) for text in texts
    ]
    input_ids = nn.utils.rnn.pad_sequence(ids, batch_first=True)
    return {"input_ids": input_ids, "attention_mask": (input_ids != 0).long()}


def fine_tune(
    samples: list[tuple[str, int]], rule: str, epochs: int, new_model: Callable[[], nn.Module] = TinyTextModel
) -> list[nn.Module]:
    """Two models, trained by a rule on texts with labels."""

    def collate(some: list[tuple[str, int]]) -> dict[str, Tensor]:
        return {**encode([text for text, _ in some]), "labels": torch.tensor([label for _, label in some])}

    models = [new_model().train() for _ in range(2)]
    optimisers = [torch.optim.AdamW(model.parameters(), 0.003) for model in models]
    for epoch in range(1, epochs + 1):
        keep = coteach.schedules.keep_rate(epoch, NOISE_RATE, ramp=max(1, epochs // 3))
        for batch in DataLoader(samples, 32, shuffle=True, collate_fn=collate):  # pyrefly: ignore[bad-argument-type]
            labels = batch.pop("labels")  # or the model would compute a loss over all of them
            logits_N = [model(**batch).logits for model in models]
            weight_NB = coteach.rules.weights(rule, logits_N, labels, keep)  # whose labels to believe
            for logits, weight_B, optimiser in zip(logits_N, weight_NB, optimisers, strict=True):
                optimiser.zero_grad()
                (weight_B * F.cross_entropy(logits, labels, reduction="none")).sum().backward()
                optimiser.step()
    return [model.eval() for model in models]


def some_texts(n: int, seed: int) -> list[tuple[str, int]]:
    """Sentences of common words with two to four of their topic."""
    draw = random.Random(seed)
    texts = []
    for _ in range(n):
        label = draw.randrange(len(TOPICS))
        words = draw.choices(COMMON.split(), k=draw.randint(4, 12))
        words += draw.choices(list(TOPICS.values())[label].split(), k=draw.randint(2, 4))
        draw.shuffle(words)
        texts.append((" ".join(words), label))
    return texts


@torch.no_grad()
def accuracy(models: list[nn.Module], samples: list[tuple[str, int]]) -> float:
    batch, labels = encode([text for text, _ in samples]), torch.tensor([label for _, label in samples])
    p = torch.stack([model(**batch).logits.softmax(-1) for model in models]).mean(0)
    return (p.argmax(-1) == labels).float().mean().item()


def main(epochs: int = 20, samples: int = 600) -> dict[str, float]:
    """Test accuracy of both models together, for each rule."""
    torch.set_num_threads(1)  # such a tiny model takes longer when it is shared out; leave it out for yours
    train, test = some_texts(samples, seed=0), some_texts(500, seed=1)
    noise = coteach.noise.corrupt([label for _, label in train], "symmetric", NOISE_RATE, n_classes=len(TOPICS))
    given = [(text, int(label)) for (text, _), label in zip(train, noise.labels, strict=True)]
    found = {}
    for rule in ("standard", "coteaching"):
        torch.manual_seed(0)
        found[rule] = accuracy(fine_tune(given, rule, epochs), test)
        print(f"{rule}: {found[rule]:.1%} of {len(test)} test texts")
    return found


if __name__ == "__main__":
    main()
