"""The networks against the paper's table written out, and stacked against alone."""

import copy
import subprocess
import sys
from math import ceil

import pytest
import torch
import torch.nn.functional as F
from hypothesis import given
from hypothesis import strategies as st
from torch import Tensor, nn
from torch.func import functional_call, stack_module_state

from coteach.networks import FORMS, NETWORKS, build, default_for
from coteach.networks.models import CNN7, MLP, NewsNet, PreActResNet18, SmallCNN, pool_words

VECTORS_VD = torch.randn(30, 6, generator=torch.Generator().manual_seed(0))
SHAPES = {
    "mlp": (1, 8, 8),
    "mlp3": (64,),
    "news": (50,),
    "news_flat": (50,),
    "preact_resnet18": (3, 9, 9),
    "preact_resnet18_authors": (3, 25, 25),
}


def shape_of(name: str) -> tuple[int, ...]:
    return SHAPES.get(name, (3, 32, 32))


def make(name: str, seed: int = 0, n_classes: int = 5) -> nn.Module:
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(seed)
        vectors = VECTORS_VD if name.startswith("news") else None
        return build(name, shape=shape_of(name), n_classes=n_classes, vectors=vectors)


def samples(name: str, *leading: int) -> Tensor:
    generator = torch.Generator().manual_seed(1)
    if name.startswith("news"):
        return torch.randint(0, len(VECTORS_VD), (*leading, *shape_of(name)), generator=generator)
    return torch.rand(*leading, *shape_of(name), generator=generator, dtype=torch.float64)


def n_parameters(network: nn.Module) -> int:
    return sum(p.numel() for p in network.parameters())


# ---- parameter counts --------------------------------------------------------------------------------------


def dense(n_in: int, n_out: int) -> int:
    return n_in * n_out + n_out


def conv(side: int, n_in: int, n_out: int) -> int:
    return side * side * n_in * n_out + n_out


def norm(n: int) -> int:
    return 2 * n


def cnn7_body(n_last: int) -> int:
    widths = [3, 64, 64, 128, 128, 196, n_last]
    return sum(9 * a * b + norm(b) for a, b in zip(widths[:-1], widths[1:], strict=True))


def resnet_body() -> int:
    def block(n_in: int, n_out: int) -> int:
        projection = n_in * n_out if n_in != n_out else 0
        return norm(n_in) + 9 * n_in * n_out + norm(n_out) + 9 * n_out * n_out + projection

    pairs = [(64, 64), (64, 64), (64, 128), (128, 128), (128, 256), (256, 256), (256, 512), (512, 512)]
    return 9 * 3 * 64 + sum(block(a, b) for a, b in pairs)


COUNTS = [
    (lambda: MLP(784, 10), 203_530),
    (lambda: MLP(784, 10), dense(784, 256) + dense(256, 10)),
    (lambda: MLP(784, 10, hidden=(256, 256)), dense(784, 256) + dense(256, 256) + dense(256, 10)),
    (lambda: SmallCNN(10), conv(5, 3, 6) + conv(5, 6, 16) + dense(400, 120) + dense(120, 84) + dense(84, 10)),
    (lambda: CNN7(100), cnn7_body(16) + dense(256, 100)),
    (lambda: CNN7(100, "printed"), cnn7_body(196) + dense(3136, 100)),
    (lambda: CNN7(100, "dense"), cnn7_body(196) + dense(3136, 256) + dense(256, 100)),
    (
        lambda: NewsNet(torch.zeros(9, 300), 7),
        dense(4800, 1200) + norm(1200) + dense(1200, 300) + norm(300) + dense(300, 7),
    ),
    (lambda: PreActResNet18(200), resnet_body() + norm(512) + dense(512, 200)),
    (lambda: PreActResNet18(200, "authors"), resnet_body() + dense(512, 200)),
]


@pytest.mark.parametrize("network, expected", COUNTS)
def test_parameter_counts(network, expected):
    with torch.device("meta"):
        assert n_parameters(network()) == expected


# ---- outputs against the table written out -----------------------------------------------------------------


class ByHand:
    """Layers by hand, which take their weights from a network in the order in which it registered them."""

    def __init__(self, network: nn.Module) -> None:
        self.weights = iter(list(network.parameters()))

    def dense(self, x: Tensor) -> Tensor:
        weight, bias = next(self.weights), next(self.weights)
        return (x[:, None, :] * weight).sum(-1) + bias

    def conv(self, x: Tensor, padding: int, bias: bool = True, stride: int = 1) -> Tensor:
        weight = next(self.weights)
        return F.conv2d(x, weight, next(self.weights) if bias else None, padding=padding, stride=stride)

    def norm(self, x: Tensor) -> Tensor:
        weight, bias = next(self.weights), next(self.weights)
        axes = [axis for axis in range(x.ndim) if axis != 1]
        centred = x - x.mean(axes, keepdim=True)
        scaled = centred / (centred.square().mean(axes, keepdim=True) + 1e-5).sqrt()
        channel = [1, -1] + [1] * (x.ndim - 2)
        return scaled * weight.view(channel) + bias.view(channel)

    def mlp(self, x: Tensor, n_hidden: int) -> Tensor:
        x = x.reshape(len(x), -1)
        for _ in range(n_hidden):
            x = self.dense(x).clamp(min=0)
        return self.dense(x)

    def small_cnn(self, x: Tensor) -> Tensor:
        for _ in range(2):
            x = halved(self.conv(x, padding=0).clamp(min=0))
        return self.mlp(x, n_hidden=2)

    def cnn7(self, x: Tensor, form: str) -> Tensor:
        for _ in range(3):
            for _ in range(2):
                x = self.norm(self.conv(x, padding=1, bias=False)).clamp(min=0)
            x = halved(x)
        x = x.reshape(len(x), -1)
        return self.dense(self.dense(x)) if form == "dense" else self.dense(x)

    def news(self, x: Tensor) -> Tensor:
        for _ in range(2):
            x = self.norm(self.dense(x))
            x = x / (1 + x.abs())
        return self.dense(x)

    def fast(self, x: Tensor) -> Tensor:
        x = normalised(patches(x), 1e-8)
        x = gelu(torch.cat([x, -x], 1))
        for _ in range(3):
            first, second, _, first_bias, _, second_bias = (next(self.weights) for _ in range(6))
            x = halved(F.conv2d(x, first, padding=1))
            x = gelu(normalised(x, 1e-5) + 8 * first_bias.view(-1, 1, 1))
            x = gelu(normalised(F.conv2d(x, second, padding=1), 1e-5) + 8 * second_bias.view(-1, 1, 1))
        return (x.amax((2, 3))[:, None, :] * next(self.weights)).sum(-1) / 9

    def resnet(self, x: Tensor, head: str) -> Tensor:
        x = self.conv(x, 1, bias=False)
        for n_block in range(8):
            shrinks = n_block in (2, 4, 6)
            stride = 2 if shrinks else 1
            active = self.norm(x).clamp(min=0)
            y = self.conv(active, 1, bias=False, stride=stride)
            y = self.conv(self.norm(y).clamp(min=0), 1, bias=False)
            x = y + (self.conv(active, 0, bias=False, stride=stride) if shrinks else x)
        if head == "standard":
            return self.dense(self.norm(x).clamp(min=0).mean((2, 3)))
        return self.dense(x[:, :, :4, :4].mean((2, 3)))


def halved(x: Tensor) -> Tensor:
    """A 2×2 max-pool: the largest of the four pixels of each square."""
    x = x[:, :, : x.shape[2] // 2 * 2, : x.shape[3] // 2 * 2]
    corners = [x[:, :, i::2, j::2] for i in (0, 1) for j in (0, 1)]
    return torch.stack(corners).amax(0)


def patches(x: Tensor) -> Tensor:
    """Twelve sums over 2×2 pixels and three channels: each an average or a difference along each axis."""
    across_channels = [(1, 1, 1), (1, 0, -1), (1, -2, 1)]  # squares that add up to 3, 2 and 6
    sums = []
    for weights in across_channels:
        mixed = sum(weight * x[:, c] for c, weight in enumerate(weights)) / sum(w * w for w in weights) ** 0.5
        for down in (1, -1):
            for right in (1, -1):
                top = mixed[:, :-1, :-1] + right * mixed[:, :-1, 1:]
                bottom = mixed[:, 1:, :-1] + right * mixed[:, 1:, 1:]
                sums.append((top + down * bottom) / 2)
    return torch.stack(sums, 1)


def normalised(x: Tensor, epsilon: float) -> Tensor:
    centred = x - x.mean((0, 2, 3), keepdim=True)
    return centred / (centred.square().mean((0, 2, 3), keepdim=True) + epsilon).sqrt()


def gelu(x: Tensor) -> Tensor:
    return x * (1 + torch.erf(x / 2**0.5)) / 2


def logits_by_hand(name: str, network: nn.Module, x: Tensor) -> Tensor:
    hand = ByHand(network)
    if name.startswith("mlp"):
        return hand.mlp(x, n_hidden=2 if name == "mlp3" else 1)
    if name == "small_cnn":
        return hand.small_cnn(x)
    if name.startswith("cnn7"):
        return hand.cnn7(x, "dense" if name == "cnn7_dense" else "")
    if name.startswith("news"):
        vectors = VECTORS_VD.double().tolist()
        documents = [[vectors[word] for word in document] for document in x.tolist()]
        pooling = pooled_flat if name == "news_flat" else pooled_words
        return hand.news(torch.tensor([pooling(words) for words in documents], dtype=torch.float64))
    if name == "fast_cnn":
        return hand.fast(x)
    return hand.resnet(x, "authors" if name.endswith("authors") else "standard")


def window_means(numbers: list[float], n_windows: int) -> list[float]:
    n = len(numbers)
    windows = [numbers[i * n // n_windows : ceil((i + 1) * n / n_windows)] for i in range(n_windows)]
    return [sum(window) / len(window) for window in windows]


def pooled_words(words: list[list[float]]) -> list[float]:
    by_coordinate = [window_means(list(column), 16) for column in zip(*words, strict=True)]
    return [coordinate[piece] for piece in range(16) for coordinate in by_coordinate]


def pooled_flat(words: list[list[float]]) -> list[float]:
    return window_means([number for word in words for number in word], 16 * len(words[0]))


@pytest.mark.parametrize("name", NETWORKS)
def test_logits_as_the_table_says(name):
    network = make(name).double()
    x = samples(name, 3)
    with torch.no_grad():
        tolerance = 1e-6 if name == "fast_cnn" else 1e-10  # whose filters are in single precision
        torch.testing.assert_close(network(x), logits_by_hand(name, network, x), rtol=0, atol=tolerance)


def test_authors_resnet_sees_four_of_seven_rows_at_56_pixels():
    network = PreActResNet18(3, "authors").double()
    x = torch.rand(2, 3, 56, 56, dtype=torch.float64)
    maps = []
    network.stages.register_forward_hook(lambda module, inputs, output: maps.append(output))
    with torch.no_grad():
        logits = network(x)
    assert maps[0].shape == (2, 512, 7, 7)
    torch.testing.assert_close(logits, network.output(maps[0][:, :, :4, :4].mean((2, 3))))


def test_dense_form_exposes_its_256_features():
    network = CNN7(10, "dense").eval()
    x = torch.rand(2, 3, 32, 32)
    features = network.features(x)
    assert features.shape == (2, 256)
    assert (features < 0).any()  # linear: no ReLU after it
    torch.testing.assert_close(network(x), network.output(features))


# ---- NEWS --------------------------------------------------------------------------------------------------


@given(n_tokens=st.integers(1, 70), d=st.integers(1, 5), seed=st.integers(0, 99))
def test_pooling_windows(n_tokens, d, seed):
    generator = torch.Generator().manual_seed(seed)
    vectors = torch.randn(11, d, generator=generator, dtype=torch.float64)
    tokens = torch.randint(0, 11, (2, n_tokens), generator=generator)
    documents = vectors[tokens].tolist()
    words = torch.tensor([pooled_words(document) for document in documents], dtype=torch.float64)
    flat = torch.tensor([pooled_flat(document) for document in documents], dtype=torch.float64)
    torch.testing.assert_close(pool_words(tokens, vectors, "words"), words, rtol=0, atol=1e-12)
    torch.testing.assert_close(pool_words(tokens, vectors, "flat"), flat, rtol=0, atol=1e-12)


@pytest.mark.parametrize("name", ["news", "news_flat"])
def test_documents_may_be_pooled_beforehand(name):
    network, tokens = make(name), samples(name, 4)
    pooled = pool_words(tokens, network.get_buffer("vectors"), FORMS.get(name, {}).get("pooling", "words"))
    torch.testing.assert_close(network(pooled), network(tokens), rtol=0, atol=0)


def test_word_vectors_are_frozen_shared_and_not_saved():
    one, other = make("news", 1), make("news", 2)
    assert one.get_buffer("vectors").data_ptr() == VECTORS_VD.data_ptr()
    assert other.get_buffer("vectors").data_ptr() == VECTORS_VD.data_ptr()
    assert "vectors" in NewsNet.shared_buffers
    assert "vectors" in dict(one.named_buffers())
    assert "vectors" not in dict(one.named_parameters())
    assert "vectors" not in one.state_dict()


# ---- stacked -----------------------------------------------------------------------------------------------


def stacked(networks: list[nn.Module]):
    params, buffers = stack_module_state(networks)
    shared = {name: networks[0].get_buffer(name) for name in getattr(networks[0], "shared_buffers", ())}
    buffers = {name: buffer for name, buffer in buffers.items() if name not in shared}

    def one(params: dict[str, Tensor], buffers: dict[str, Tensor], x: Tensor) -> Tensor:
        return functional_call(networks[0], params | buffers | shared, (x,))

    return params, buffers, torch.vmap(one)


@pytest.mark.parametrize(
    "name", [pytest.param(name, marks=pytest.mark.slow if "resnet" in name else ()) for name in NETWORKS]
)
def test_stacked_equals_alone(name):
    """Outputs, gradients and running statistics of a step, then outputs in evaluation."""
    networks = [make(name, seed).double().train() for seed in (1, 2)]
    x_RB = samples(name, 2, 3)
    weight_RBC = torch.rand(2, 3, 5, dtype=torch.float64, generator=torch.Generator().manual_seed(2))
    params, buffers, call = stacked(networks)
    fresh = {key: buffer.clone() for key, buffer in buffers.items()}

    together = call(params, buffers, x_RB)
    (together * weight_RBC).sum().backward()
    for r, network in enumerate(networks):
        alone = network(x_RB[r])
        (alone * weight_RBC[r]).sum().backward()
        torch.testing.assert_close(together[r], alone, rtol=0, atol=1e-10)
        for key, p in network.named_parameters():
            if not p.requires_grad:
                continue
            assert p.grad is not None
            assert p.grad.abs().max() > 0
            torch.testing.assert_close(params[key].grad[r], p.grad, rtol=1e-9, atol=1e-10)
        for key in buffers:
            counts = key.endswith("num_batches_tracked")  # not every batch norm does
            assert counts or not torch.equal(buffers[key][r], fresh[key][r])
            torch.testing.assert_close(buffers[key][r], network.get_buffer(key), rtol=0, atol=1e-12)

    for network in networks:
        network.eval()
    with torch.no_grad():
        together = call(params, buffers, x_RB)
        alone = torch.stack([network(x) for network, x in zip(networks, x_RB, strict=True)])
    torch.testing.assert_close(together, alone, rtol=0, atol=1e-9)


# ---- by name -----------------------------------------------------------------------------------------------


def test_importing_the_names_does_not_import_torch():
    program = "import sys, coteach.networks; sys.exit('torch' in sys.modules)"
    subprocess.run([sys.executable, "-c", program], check=True, env={"PYTHONPATH": ":".join(sys.path)})


@pytest.mark.parametrize("name", NETWORKS)
@pytest.mark.parametrize("n_classes", [2, 7])
def test_every_network_gives_one_logit_a_class(name, n_classes):
    x = samples(name, 4)
    x = x.float() if x.is_floating_point() else x
    logits = make(name, n_classes=n_classes)(x)
    assert logits.shape == (4, n_classes)
    assert logits.isfinite().all()


def test_a_bias_before_batch_norm_does_nothing():
    """So that CNN7 may do without the ones that its authors' code has."""
    network, x = CNN7(5).double(), torch.rand(8, 3, 32, 32, dtype=torch.float64)
    biased = copy.deepcopy(network)
    for conv in biased.convolutions:
        if isinstance(conv, nn.Conv2d):
            conv.bias = nn.Parameter(torch.randn(conv.out_channels, dtype=torch.float64))
    torch.testing.assert_close(biased(x), network(x), rtol=1e-9, atol=1e-9)
    biased(x).square().sum().backward()
    assert all(m.bias.grad.abs().max() < 1e-9 for m in biased.convolutions if isinstance(m, nn.Conv2d))
    # in evaluation, too, once the running means have forgotten that they began at 0
    for module in (*biased.convolutions, *network.convolutions):
        if isinstance(module, nn.BatchNorm2d):
            module.momentum = 1.0
    biased(x), network(x)
    torch.testing.assert_close(biased.eval()(x), network.eval()(x), rtol=1e-9, atol=1e-9)


def test_options_reach_the_network():
    assert n_parameters(build("mlp", shape=(64,), n_classes=3, hidden=(5,))) == dense(64, 5) + dense(5, 3)
    assert n_parameters(build("mlp3", shape=(64,), n_classes=3, hidden=())) == dense(64, 3)
    assert n_parameters(build("cnn7", shape=(1, 32, 32), n_classes=3)) == (
        cnn7_body(16) - 2 * 9 * 64 + dense(256, 3)
    )


@pytest.mark.parametrize(
    "name, nearest", [("MLP", "mlp"), ("smallcnn", "small_cnn"), ("resnet18", "preact_resnet18")]
)
def test_unknown_name_is_told_the_nearest(name, nearest):
    with pytest.raises(ValueError) as refusal:
        build(name, shape=(64,), n_classes=2)
    everything = ", ".join(NETWORKS)
    message = f"there is no network {name!r} (did you mean {nearest!r}?): choose one of {everything}."
    assert str(refusal.value) == message


@pytest.mark.parametrize(
    "name, shape, remedy",
    [
        ("small_cnn", (1, 28, 28), "32, 32"),
        ("small_cnn", (3, 32, 64), "32, 32"),
        ("cnn7", (64,), "32, 32"),
        ("cnn7_dense", (3, 64, 64), "32, 32"),
        ("preact_resnet18", (100,), "or choose 'mlp'"),
        ("preact_resnet18", (3, 7, 9), "or choose 'mlp'"),
        ("preact_resnet18_authors", (3, 64, 64), "crop"),
        ("preact_resnet18_authors", (3, 24, 24), "crop"),
        ("fast_cnn", (3, 15, 40), "16×16 or more"),
        ("fast_cnn", (256,), "or choose 'mlp'"),
        ("news", (1000,), "word vectors"),
    ],
)
def test_impossible_shapes_are_refused_with_a_remedy(name, shape, remedy):
    with pytest.raises(ValueError, match=remedy):
        build(name, shape=shape, n_classes=2)


def test_words_go_to_the_news_networks_only():
    with pytest.raises(ValueError, match="choose 'news'"):
        build("mlp", shape=(1000,), n_classes=2, vectors=VECTORS_VD)
    with pytest.raises(ValueError, match="n_tokens"):
        build("news", shape=(1, 28, 28), n_classes=2, vectors=VECTORS_VD)
    with pytest.raises(ValueError, match=r"one row a word.*\(30,\)"):
        build("news", shape=(1000,), n_classes=2, vectors=VECTORS_VD[:, 0])


@pytest.mark.parametrize(
    "name, option", [("cnn7", {"form": "x"}), ("news", {"pooling": "x"}), ("preact_resnet18", {"head": "x"})]
)
def test_unknown_forms_are_refused(name, option):
    vectors = VECTORS_VD if name == "news" else None
    with pytest.raises(ValueError, match="'x'.*choose"):
        build(name, shape=shape_of(name), n_classes=2, vectors=vectors, **option)


@pytest.mark.parametrize("side", [25, 26, 33, 41, 49, 55, 56])
def test_authors_head_takes_every_size_it_promises(side):
    with torch.device("meta"):
        network = build("preact_resnet18_authors", shape=(3, side, side), n_classes=4)
        assert network(torch.rand(2, 3, side, side)).shape == (2, 4)


@pytest.mark.parametrize(
    "shape, is_tokens, name",
    [
        ((1000,), True, "news"),
        ((64,), False, "mlp"),
        ((1, 28, 28), False, "mlp"),
        ((3, 32, 32), False, "small_cnn"),
        ((3, 64, 64), False, "preact_resnet18"),
        ((1, 128, 96), False, "preact_resnet18"),
        ((3, 48, 200), False, "mlp"),
    ],
)
def test_default_network_can_take_the_shape(shape, is_tokens, name):
    assert default_for(shape, is_tokens) == name
    vectors = VECTORS_VD if is_tokens else None
    with torch.device("meta"):
        build(name, shape=shape, n_classes=2, vectors=vectors)
