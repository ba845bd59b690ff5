"""The fast network: which images it takes, how it begins and learns, and that it is saved and stacked whole."""

import copy
import re
from dataclasses import replace

import numpy as np
import pytest
import torch
import torch.nn.functional as F
from safetensors.torch import load_file, save_file
from torch import nn

import coteach
from coteach import cli
from coteach.data import Dataset
from coteach.engine import Engine
from coteach.engine.stack import Stack
from coteach.methods import METHODS
from coteach.networks import build
from coteach.networks.fast import BiasBatchNorm2d, FastBlock, FastCNN, UncorrelatedPatches, identity_convolution
from coteach.networks.models import take_weights, weights_of
from coteach.runs.run import run
from coteach.train import fit
from modern_cases import bytes_problem, narrow, random_images
from run_cases import experiment, silent
from tiny import EVERYTHING, C, assert_same_weights

# ---- which images ---------------------------------------------------------------------------------------------


@pytest.mark.parametrize("channels", [1, 3, 4, 6])
@pytest.mark.parametrize("height, width", [(16, 16), (16, 40), (23, 17), (33, 32), (64, 64), (96, 91)])
def test_images_of_any_size_and_number_of_channels(height, width, channels):
    network = build("fast_cnn", shape=(channels, height, width), n_classes=5, width=1 / 16)
    x = random_images(4, channels, height, width)
    logits = network(x)
    assert logits.shape == (4, 5)
    logits.square().sum().backward()
    for name, weight in network.named_parameters():
        if weight.requires_grad:
            assert weight.grad.isfinite().all(), name
            assert weight.grad.any(), name
    assert network.eval()(x).isfinite().all()


@pytest.mark.parametrize("side", [*range(16, 49), 63, 64, 65, 90, 91, 95, 96, 97, 128])
def test_something_of_every_image_is_left_for_the_last_maximum(side):
    with torch.device("meta"):
        network = FastCNN(2, 3, side, width=1 / 16)
        features = network.blocks(network.patches(torch.rand(2, 3, side, side)))
    assert 2 <= features.shape[-1] <= 5


@pytest.mark.parametrize("shape", [(3, 15, 15), (3, 64, 12), (1, 8, 8)])
def test_smaller_images_are_refused_with_a_remedy(shape):
    sentence = f"fast_cnn cannot take a sample of shape {shape}: give it images of 16×16 or more, or choose 'mlp'."
    with pytest.raises(ValueError, match=f"^{re.escape(sentence)}$"):
        build("fast_cnn", shape=shape, n_classes=2)


def test_width_multiplies_the_channels_of_the_blocks():
    def channels(width: float) -> list[int]:
        return [block.conv2.out_channels for block in FastCNN(2, width=width).blocks]

    assert channels(1) == [64, 256, 256]
    assert channels(0.5) == [32, 128, 128]
    assert channels(1.5) == [96, 384, 384]
    assert channels(0.001) == [8, 8, 8]
    for width in (0, -1, float("nan"), float("inf")):
        with pytest.raises(ValueError, match=f"width is {width}: give a number above 0"):
            FastCNN(2, width=width)


# ---- how it begins --------------------------------------------------------------------------------------------


@pytest.mark.parametrize("channels", [1, 2, 3, 4, 6])
def test_filters_are_orthonormal_and_only_one_sees_the_mean(channels):
    filters = UncorrelatedPatches(channels).filters.flatten(1)
    assert filters.shape == (4 * channels, 4 * channels)
    torch.testing.assert_close(filters @ filters.T, torch.eye(4 * channels), rtol=0, atol=1e-6)
    torch.testing.assert_close(filters[1:].sum(1), torch.zeros(4 * channels - 1), rtol=0, atol=1e-6)


def test_patches_of_photographs_are_all_but_uncorrelated_and_of_equal_variance():
    """On random walks over the image: neighbouring pixels are alike, as in a photograph."""
    x = torch.randn(200, 3, 20, 20, generator=torch.Generator().manual_seed(0))
    x = x.cumsum(2).cumsum(3)
    x = x + 2 * x.mean(1, keepdim=True)
    patches = UncorrelatedPatches(3)
    seen = patches.norm(F.conv2d(x, patches.filters)).transpose(0, 1).flatten(1)
    torch.testing.assert_close(seen.std(1), torch.ones(12), rtol=1e-3, atol=1e-3)
    apart = (torch.corrcoef(seen) - torch.eye(12)).abs()
    raw = torch.corrcoef(F.unfold(x, 2).transpose(0, 1).flatten(1))
    assert apart.max() < 0.3
    assert raw.min() > 0.5


@pytest.mark.parametrize("n_in, n_out", [(4, 4), (4, 6), (6, 4)])
def test_a_convolution_begins_as_the_identity(n_in, n_out):
    x = random_images(2, n_in, 5, 6)
    both = min(n_in, n_out)
    torch.testing.assert_close(identity_convolution(n_in, n_out)(x)[:, :both], x[:, :both])


def test_logits_begin_small():
    logits = FastCNN(10)(random_images(16, 3, 32, 32))
    assert logits.abs().max() < 1


# ---- how it learns --------------------------------------------------------------------------------------------


def test_the_bias_of_a_batch_norm_learns_64_times_as_fast():
    x = random_images(8, 4, 5, 5)
    moves = []
    for norm, scale in ((BiasBatchNorm2d(4), 8), (nn.BatchNorm2d(4, momentum=0.4), 1)):
        optimiser = torch.optim.SGD([p for p in norm.parameters() if p.requires_grad], lr=0.01)
        (norm(x) * torch.arange(1.0, 5).view(-1, 1, 1)).sum().backward()
        optimiser.step()
        moves.append(scale * norm.bias.detach())
    torch.testing.assert_close(moves[0], 64 * moves[1])
    assert moves[0].abs().min() > 0


def test_its_batch_norm_is_torchs_but_for_the_bias():
    mine, torchs, x = BiasBatchNorm2d(4), nn.BatchNorm2d(4, momentum=0.4), random_images(8, 4, 5, 5)
    torch.testing.assert_close(mine(x), torchs(x))
    torch.testing.assert_close(mine.eval()(x), torchs.eval()(x))
    torch.testing.assert_close(mine.running_var, torchs.running_var)
    with torch.no_grad():
        mine.bias.add_(1)
    torch.testing.assert_close(mine(x), torchs(x) + 8)
    assert [name for name, p in mine.named_parameters() if p.requires_grad] == ["bias"]


def test_a_block_halves_the_image():
    assert FastBlock(3, 8)(random_images(2, 3, 31, 17)).shape == (2, 8, 15, 8)


# ---- stacked and saved ----------------------------------------------------------------------------------------


def test_a_stack_shares_the_filters_and_hands_out_whole_networks():
    for batched in (True, False):
        stack = Stack(narrow, [1, 2], 2, batched=batched)
        assert not any("filters" in name for name in stack.buffers)
        x = random_images(6)
        with stack.evaluating():
            together = stack(x.expand(2, 2, *x.shape))
            for n in range(2):
                for r in range(2):
                    torch.testing.assert_close(together[n, r], stack.network(n, r)(x), rtol=1e-4, atol=1e-5)


def test_batched_is_looped_with_everything():
    ends = [
        fit(bytes_problem(), METHODS["coteaching"], replace(EVERYTHING, epochs=2), narrow,
            engine=Engine(torch.float64, batched))
        for batched in (True, False)
    ]  # fmt: skip
    for n in range(2):
        for r in range(2):
            assert_same_weights(*(end.stack.network(n, r) for end in ends))


def test_saved_weights_load(tmp_path):
    training = fit(bytes_problem(1), METHODS["coteaching"], replace(EVERYTHING, epochs=1), narrow)
    networks = [training.stack.network(n, 0) for n in range(2)]
    save_file(weights_of(networks), tmp_path / "weights.safetensors")
    others = [build("fast_cnn", shape=(3, 16, 16), n_classes=C, width=1 / 16).eval() for _ in range(2)]
    untrained = copy.deepcopy(others)
    take_weights(others, load_file(tmp_path / "weights.safetensors"), "weights.safetensors")
    for mine, theirs, before in zip(others, networks, untrained, strict=True):
        assert torch.equal(mine(random_images()), theirs(random_images()))
        assert not torch.equal(mine(random_images()), before(random_images()))


@pytest.mark.slow
def test_a_classifier_with_it_is_saved_whole(tmp_path):
    x, y = random_images(80).numpy(), np.arange(80) % 2
    x[y == 1, 0] += 0.5
    classifier = coteach.RobustClassifier(
        module="fast_cnn", module__width=1 / 16, epochs=3, noise_rate=0.1, batch_size=20, device="cpu",
        random_state=0,
    ).fit(x, y)  # fmt: skip
    classifier.save(tmp_path / "model.safetensors")
    again = coteach.RobustClassifier.load(tmp_path / "model.safetensors")
    np.testing.assert_array_equal(again.predict_proba(x), classifier.predict_proba(x))
    assert isinstance(again.networks_[0], FastCNN)


def test_a_run_with_it_is_written_and_its_networks_come_back(tmp_path):
    x, y = (random_images(96) * 255).byte().numpy(), np.arange(96) % 3
    data = Dataset.from_arrays(x[:64], y[:64], x[64:], y[64:])
    e = experiment(
        tmp_path,
        network="fast_cnn",
        width=1 / 16,
        recipe="modern",
        epochs=2,
        tau=0.2,
        batch_size=16,
        precision="float32",
    )
    done = run(e, data, say=silent)
    assert len(done.rows) == 4
    network = done.network(0, 2)
    assert isinstance(network, FastCNN)
    found = (network(data.x_test.float() / 255).argmax(1) == data.y_test).double().mean().item()
    assert found == pytest.approx(done.rows[-1]["test_accuracy"][0])


def test_the_command_refuses_images_that_are_too_small(capsys, tmp_path):
    with pytest.raises(SystemExit, match="2"):
        cli.main(
            ["run", "--network", "fast_cnn", "--epochs", "1", "--device", "cpu", "--out", str(tmp_path / "x")]
        )
    said = capsys.readouterr().err
    assert said.count("\n") == 1
    assert "fast_cnn cannot take a sample of shape" in said


def test_mirror_images_answer_together_but_not_while_learning():
    torch.manual_seed(0)
    network, x = FastCNN(4, width=0.125, mirror=True), torch.rand(6, 3, 16, 20)
    alone = FastCNN(4, width=0.125)
    alone.load_state_dict(network.state_dict())
    network.train()(x), alone.train()(x)
    torch.testing.assert_close(network.train()(x), alone.train()(x))
    network.eval(), alone.eval()
    torch.testing.assert_close(network(x), (alone(x) + alone(x.flip(-1))) / 2)
    torch.testing.assert_close(network(x), network(x.flip(-1)))
    assert not torch.allclose(alone(x), alone(x.flip(-1)))
