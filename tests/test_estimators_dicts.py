"""RobustClassifier on data sets of dicts, and with models of transformers."""

import numpy as np
import pytest
import torch
from torch import nn
from torch.utils.data import Dataset, TensorDataset

from coteach import RobustClassifier
from coteach.data.dicts import entries_of, is_of_dicts, tokens
from estimator_cases import quick, three_clouds

NAMES = ["ash", "birch", "cedar"]


class Rows(Dataset):
    """A torch data set of dicts."""

    def __init__(self, **columns):
        self.columns = columns

    def __len__(self):
        return len(next(iter(self.columns.values())))

    def __getitem__(self, index):
        if index >= len(self):
            raise IndexError
        return {name: column[index] for name, column in self.columns.items()}


def test_a_torch_data_set_of_dicts_is_the_same_as_arrays():
    x, y = three_clouds()
    pairs = TensorDataset(torch.from_numpy(x), torch.from_numpy(y))
    expected = quick().fit(pairs)
    for form in (
        Rows(x=x, label=y),
        Rows(features=torch.from_numpy(x), labels=torch.from_numpy(y), id=["a"] * 120),
    ):
        found = quick().fit(form)
        assert (found.predict_proba(form) == expected.predict_proba(pairs)).all()
        assert (found.label_quality_ == expected.label_quality_).all()
        assert (found.predict_proba(x) == expected.predict_proba(x)).all()
    columns = quick().fit(Rows(label=y, **{name: x[:, i] for i, name in enumerate("abcde")}))
    np.testing.assert_allclose(columns.predict_proba(x), expected.predict_proba(x), atol=1e-5)
    streamed = quick(stream=True).fit(Rows(x=x, label=y))
    np.testing.assert_allclose(streamed.predict_proba(x), expected.predict_proba(x), atol=1e-5)


def test_labels_may_be_handed_in_beside_dicts():
    x, y = three_clouds()
    found = quick().fit(Rows(x=x), np.array(NAMES)[y])
    assert found.classes_.tolist() == NAMES
    assert (found.predict(Rows(x=x)) == quick().fit(x, np.array(NAMES)[y]).predict(x)).all()


def test_validation_data_may_be_dicts_too():
    x, y = three_clouds()
    found = quick(early_stopping=True).fit(Rows(x=x, label=y), validation_data=Rows(x=x[:30], label=y[:30]))
    assert "validation_accuracy" in found.history_[0]


class OfTokens(nn.Module):
    """Means of word vectors; called with names, as models of transformers are."""

    def __init__(self, n_classes):
        super().__init__()
        self.vectors, self.head = nn.Embedding(40, 8), nn.Linear(8, n_classes)

    def forward(self, input_ids, attention_mask):
        assert input_ids.dtype == torch.int64
        words = self.vectors(input_ids) * attention_mask[..., None]
        return {"logits": self.head(words.sum(1) / attention_mask.sum(1, keepdim=True))}


def texts(n=90):
    random = np.random.default_rng(0)
    y = np.arange(n) % 3
    ids = [[int(1 + c), *random.integers(5, 40, random.integers(1, 6)).tolist()] for c in y]
    return Rows(input_ids=ids, label=y.tolist(), text=["so"] * n), y


def test_tokens_of_any_length_are_filled_up_and_reach_the_module_by_name(tmp_path):
    data, y = texts()
    model = quick(module=OfTokens, epochs=12, lr=0.05).fit(data)
    assert model.entries_.names == ("input_ids", "attention_mask")
    assert model.inputs(data).shape == (90, 2 * model.entries_.length)
    assert model.score(data, y) > 0.9
    longer = Rows(input_ids=[[1] * 50, [2]])
    assert model.predict(longer).shape == (2,)
    model.save(tmp_path / "model.safetensors")
    again = RobustClassifier.load(tmp_path / "model.safetensors", module=OfTokens)
    assert (again.predict_proba(data) == model.predict_proba(data)).all()
    with pytest.raises(ValueError, match="X holds tokens, which no network of ours takes: give a"):
        quick().fit(data)


def test_tokens_are_laid_out_one_after_the_other():
    data = Rows(input_ids=[[7, 8], [9]], token_type_ids=[[0, 1], [1]])
    entries = entries_of(data, filling=3)
    assert entries.names == ("input_ids", "attention_mask", "token_type_ids")
    assert tokens(data[0], entries).tolist() == [7, 8, 1, 1, 0, 1]
    assert tokens(data[1], entries).tolist() == [9, 3, 1, 0, 1, 0]
    assert tokens({"input_ids": [1, 2, 3], "token_type_ids": [0, 0, 0]}, entries).tolist() == [1, 2, 1, 1, 0, 0]


def test_what_is_no_sample_is_refused_in_one_sentence():
    y = [0, 1] * 5
    with pytest.raises(ValueError, match=r"which of 'text' is the sample.*which dataset\.map makes of texts"):
        quick().fit(Rows(text=["so"] * 10, label=y))
    with pytest.raises(ValueError, match="unclear which of 'a', 'b' is the sample"):
        quick().fit(Rows(a=np.eye(10), b=np.eye(10), label=y))
    model = quick().fit(Rows(x=np.eye(10), label=y))
    with pytest.raises(ValueError, match="samples have no entry 'x', which those of fit had"):
        model.predict(Rows(z=np.eye(10)))
    assert not is_of_dicts({"x": 1})
    assert not is_of_dicts("text")
    assert not is_of_dicts([])


# ---- the real packages ----------------------------------------------------------------------------------------


@pytest.mark.slow
def test_a_hugging_face_data_set_keeps_its_names():
    datasets = pytest.importorskip("datasets")
    x, y = three_clouds()
    features = datasets.Features(
        {"x": datasets.List(datasets.Value("float64")), "label": datasets.ClassLabel(names=NAMES)}
    )
    data = datasets.Dataset.from_dict({"x": x.tolist(), "label": y.tolist()}, features=features)
    expected = quick().fit(x, np.array(NAMES)[y])
    for form in (data, data.with_format("numpy"), data.with_format("torch")):
        found = quick().fit(form)
        assert found.classes_.tolist() == NAMES
        np.testing.assert_allclose(found.predict_proba(form), expected.predict_proba(x), atol=1e-3)
    frame = datasets.Dataset.from_dict({"a": x[:, 0], "b": x[:, 1], "label": y})
    assert quick().fit(frame).entries_.names == ("a", "b")
    images = datasets.Dataset.from_dict(
        {"image": [np.full((8, 8), 20 * c, np.uint8) for c in y], "label": y.tolist()},
        features=datasets.Features({"image": datasets.Image(), "label": datasets.ClassLabel(names=NAMES)}),
    )
    assert quick().fit(images).sample_shape_ == (1, 8, 8)


@pytest.mark.slow
def test_a_transformers_model_keeps_what_it_knows_and_gets_a_new_head(tmp_path):
    transformers = pytest.importorskip("transformers")
    config = transformers.BertConfig(
        vocab_size=40, hidden_size=16, num_hidden_layers=1, num_attention_heads=2, intermediate_size=16,
        max_position_embeddings=16, num_labels=3, pad_token_id=0,
    )  # fmt: skip
    trained = transformers.BertForSequenceClassification(config)
    data, y = texts(120)
    model = quick(module=trained, epochs=1, lr=1e-9).fit(data)
    first, second = (network.network for network in model.networks_)
    for network in (first, second):
        torch.testing.assert_close(network.bert.state_dict(), trained.bert.state_dict(), rtol=0, atol=1e-6)
    assert not torch.allclose(first.classifier.weight, second.classifier.weight)
    model = quick(module=lambda: transformers.BertForSequenceClassification(config), epochs=12, lr=0.003).fit(data)
    assert model.score(data, y) > 0.9
    model.save(tmp_path / "model.safetensors")
    again = RobustClassifier.load(tmp_path / "model.safetensors", module=trained)
    assert (again.predict_proba(data) == model.predict_proba(data)).all()
    with pytest.raises(ValueError, match=r"module answers two samples with shape \(2, 3\)"):
        quick(module=trained).fit(Rows(input_ids=[[1]] * 20, label=[0, 1] * 10))
