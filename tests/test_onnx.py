"""Ensembles as ONNX files: the same answers in onnxruntime, for batches of any length."""

import logging

import numpy as np
import pytest
import torch
from torch import nn

import coteach
from coteach.classifier import classifier
from coteach.engine.precision import Precision
from estimator_cases import quick, three_clouds

onnxruntime = pytest.importorskip("onnxruntime")

pytestmark = pytest.mark.slow
CLOSE = 1e-4


def answers(path, *arrays):
    session = onnxruntime.InferenceSession(str(path), providers=["CPUExecutionProvider"])
    names = [put.name for put in session.get_inputs()]
    (probabilities,) = session.run(["probabilities"], dict(zip(names, arrays, strict=True)))
    return names, probabilities


@pytest.mark.parametrize("method", ["coteaching", "cotraining", "standard"])
def test_a_classifier_of_tables(method, tmp_path):
    x, y = three_clouds()
    x = (1000 + 50 * x).astype(np.float32)  # what is to be standardised is in the file
    model = quick(method=method).fit(x, y)
    level = logging.getLogger("torch.onnx").level
    model.export_onnx(tmp_path / "model.onnx")
    assert logging.getLogger("torch.onnx").level == level
    for n in (120, 7, 1):
        names, p = answers(tmp_path / "model.onnx", x[:n])
        np.testing.assert_allclose(p, model.predict_proba(x[:n]), atol=CLOSE)
    assert names == ["x"]


def test_a_classifier_of_images_by_the_modern_recipe(tmp_path, monkeypatch):
    monkeypatch.setattr(classifier, "choose_precision", lambda *_: Precision.FLOAT32)  # as the file computes
    random = np.random.default_rng(0)
    images = random.integers(0, 256, (40, 3, 16, 16), dtype=np.uint8)
    model = coteach.RobustClassifier(noise_rate=0.1, epochs=2, module__width=0.25, random_state=0)
    model.fit(images, np.arange(40) % 2)
    assert model.network_ == "fast_cnn"
    model.export_onnx(tmp_path / "model.onnx")
    _, p = answers(tmp_path / "model.onnx", images.astype(np.float32))
    np.testing.assert_allclose(p, model.predict_proba(images), atol=CLOSE)


def test_a_pair_with_named_inputs(tmp_path):
    transformers = pytest.importorskip("transformers")
    config = transformers.BertConfig(
        vocab_size=30, hidden_size=16, num_hidden_layers=1, num_attention_heads=2, intermediate_size=16,
        max_position_embeddings=16, num_labels=3,
    )  # fmt: skip
    pair = coteach.Pair(lambda: transformers.BertForSequenceClassification(config))
    ids, mask = torch.randint(1, 30, (5, 7)), torch.ones(5, 7, dtype=torch.int64)
    mask[0, 4:] = 0
    pair.export_onnx(tmp_path / "pair.onnx", input_ids=ids[:2], attention_mask=mask[:2])
    assert pair.training
    names, p = answers(tmp_path / "pair.onnx", ids.numpy(), mask.numpy())
    assert names == ["input_ids", "attention_mask"]
    np.testing.assert_allclose(p, pair.ensemble(input_ids=ids, attention_mask=mask), atol=CLOSE)


def test_a_pair_of_tensors_and_what_is_refused(tmp_path, monkeypatch):
    pair = coteach.Pair(lambda: nn.Sequential(nn.Linear(4, 8), nn.ReLU(), nn.Dropout(0.5), nn.Linear(8, 3)))
    x = torch.randn(9, 4)
    pair.export_onnx(tmp_path / "pair.onnx", x)
    np.testing.assert_allclose(answers(tmp_path / "pair.onnx", x.numpy())[1], pair.ensemble(x), atol=CLOSE)
    with pytest.raises(ValueError, match="made from an example: give a batch of at least two samples"):
        pair.export_onnx(tmp_path / "pair.onnx", x[:1])
    monkeypatch.setattr("coteach.loops.onnx_file.find_spec", lambda name: None)
    with pytest.raises(ValueError, match=r"needs onnx and onnxscript: pip install 'coteach\[onnx\]'"):
        pair.export_onnx(tmp_path / "pair.onnx", x)
