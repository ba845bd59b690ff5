"""Encoders of other packages, on tiny models made from a configuration: no hub is asked for anything."""

import json

import numpy as np
import pytest
import torch

import coteach
from coteach.encoders.named import image_encoder, text_encoder

pytestmark = [pytest.mark.slow, pytest.mark.filterwarnings("ignore::DeprecationWarning")]
TEXTS = ["cat", "cat dog", "dog"]


@pytest.fixture
def tiny_bert(tmp_path, monkeypatch):
    transformers = pytest.importorskip("transformers")
    tokenizers = pytest.importorskip("tokenizers")
    monkeypatch.setenv("HF_HUB_OFFLINE", "1")
    words = {"[PAD]": 0, "[UNK]": 1, "[CLS]": 2, "[SEP]": 3, "[MASK]": 4, "cat": 5, "dog": 6}
    cutter = tokenizers.Tokenizer(tokenizers.models.WordLevel(words, unk_token="[UNK]"))
    cutter.pre_tokenizer = tokenizers.pre_tokenizers.Whitespace()
    folder = tmp_path / "bert"
    fast = transformers.PreTrainedTokenizerFast(
        tokenizer_object=cutter, unk_token="[UNK]", pad_token="[PAD]", model_max_length=16
    )
    fast.save_pretrained(folder)
    torch.manual_seed(0)
    config = transformers.BertConfig(
        vocab_size=7, hidden_size=8, num_hidden_layers=1, num_attention_heads=2, intermediate_size=16,
        max_position_embeddings=16,
    )  # fmt: skip
    transformers.BertModel(config).eval().save_pretrained(folder)
    return folder


def test_texts_by_transformers_are_the_mean_of_their_tokens(tiny_bert):
    transformers = pytest.importorskip("transformers")
    x = coteach.encode(TEXTS, f"hf:{tiny_bert}", device="cpu")
    model = transformers.AutoModel.from_pretrained(tiny_bert).eval()
    cutter = transformers.AutoTokenizer.from_pretrained(tiny_bert)
    for row, text in zip(x, TEXTS, strict=True):  # alone, so without padding
        with torch.inference_mode():
            states = model(**cutter(text, return_tensors="pt")).last_hidden_state
        np.testing.assert_allclose(row, states[0].mean(0), atol=1e-5)


def test_texts_by_sentence_transformers(tiny_bert):
    """Which pools by the mean, too, where a model does not say how."""
    pytest.importorskip("sentence_transformers")
    x = coteach.encode(TEXTS, f"st:{tiny_bert}", device="cpu")
    np.testing.assert_allclose(x, coteach.encode(TEXTS, f"hf:{tiny_bert}", device="cpu"), atol=1e-5)


def test_images_by_transformers(tmp_path, monkeypatch):
    transformers = pytest.importorskip("transformers")
    monkeypatch.setenv("HF_HUB_OFFLINE", "1")
    config = transformers.ViTConfig(
        hidden_size=8,
        num_hidden_layers=1,
        num_attention_heads=2,
        intermediate_size=16,
        image_size=16,
        patch_size=8,
    )
    model = transformers.ViTModel(config, add_pooling_layer=False).eval()
    model.save_pretrained(tmp_path / "vit")
    facts = {
        "image_mean": [0.5, 0.4, 0.3],
        "image_std": [0.2, 0.2, 0.2],
        "image_processor_type": "ViTImageProcessor",
    }
    (tmp_path / "vit" / "preprocessor_config.json").write_text(json.dumps(facts))
    made = image_encoder(f"hf:{tmp_path / 'vit'}")
    assert made.size == 16
    x = np.random.default_rng(0).integers(0, 256, (2, 3, 16, 16), dtype=np.uint8)
    pixels = (torch.from_numpy(x) / 255 - torch.tensor([0.5, 0.4, 0.3]).reshape(3, 1, 1)) / 0.2
    with torch.inference_mode():
        expected = model(pixels).last_hidden_state.mean(1)
    np.testing.assert_allclose(made.apply(x), expected, atol=1e-5)


def test_images_by_timm(monkeypatch):
    timm = pytest.importorskip("timm")
    own = timm.create_model("resnet18", pretrained=False, num_classes=0).eval()
    monkeypatch.setattr(timm, "create_model", lambda name, pretrained, num_classes: own)
    made = image_encoder("timm:resnet18", 64)
    x = np.random.default_rng(0).integers(0, 256, (2, 3, 64, 64), dtype=np.uint8)
    mean, std = (torch.tensor(own.pretrained_cfg[name]).reshape(3, 1, 1) for name in ("mean", "std"))
    with torch.inference_mode():
        expected = own((torch.from_numpy(x) / 255 - mean) / std)
    np.testing.assert_allclose(made.apply(x), expected, atol=1e-4)


@pytest.mark.parametrize("hub, package", [("hf", "transformers"), ("st", "sentence_transformers")])
def test_a_model_that_is_not_there_is_one_sentence(hub, package, tmp_path, monkeypatch):
    pytest.importorskip(package)
    monkeypatch.setenv("HF_HUB_OFFLINE", "1")
    with pytest.raises(ValueError, match="cannot load .* check its name and the connection") as caught:
        text_encoder(f"{hub}:{tmp_path / 'gone'}")
    assert "\n" not in str(caught.value)
