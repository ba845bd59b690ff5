"""The published files: their hashes, where they can be had, and where people usually keep them.

The sha256 of each file is the one stated by TensorFlow Datasets (MNIST, Fashion-MNIST, CIFAR, SVHN,
ImageNet-32), scikit-learn (20 Newsgroups), torchtext (GloVe) or several users (Tiny-ImageNet, whose
md5 90528d7ca1a48142e341f4ef8d21d0de is the better known).
"""

from dataclasses import dataclass


@dataclass(frozen=True)
class File:
    """One published file; `urls` are tried in turn."""

    name: str
    sha256: str
    urls: tuple[str, ...]


@dataclass(frozen=True)
class Source:
    """Files that belong together.

    `folders`, below the data folder, are searched in turn; a download goes into the first. `unpacked[i]`
    shows that `files[i]` lies there unpacked, `instead` are patterns of what may serve in its place, and
    `by_hand` says how to get what cannot be downloaded by a program.
    """

    files: tuple[File, ...]
    folders: tuple[str, ...]
    unpacked: tuple[str, ...] = ()
    instead: tuple[str, ...] = ()
    by_hand: str = ""


def _idx(hashes: tuple[str, str, str, str], mirrors: tuple[str, ...], folders: tuple[str, ...]) -> Source:
    names = (
        "train-images-idx3-ubyte",
        "train-labels-idx1-ubyte",
        "t10k-images-idx3-ubyte",
        "t10k-labels-idx1-ubyte",
    )
    files = tuple(
        File(f"{name}.gz", sha256, tuple(f"{mirror}/{name}.gz" for mirror in mirrors))
        for name, sha256 in zip(names, hashes, strict=True)
    )
    return Source(files, folders, unpacked=names)


def _single(name: str, sha256: str, *urls: str) -> tuple[File]:
    return (File(name, sha256, urls),)


SOURCES = {
    "mnist": _idx(
        (
            "440fcabf73cc546fa21475e81ea370265605f56be210a4024d2ca8f203523609",
            "3552534a0a558bbed6aed32b30c495cca23d567ec52cac8be1a0730e8010255c",
            "8d422c7b0a1c1c79245a5bcf07fe86e33eeafee792b84584aec276f5a2dbc4e6",
            "f7ae60f92e00ec6debd23a6088c31dbd2371eca3ffa0defaefb259924204aec6",
        ),
        (
            "https://ossci-datasets.s3.amazonaws.com/mnist",
            "https://storage.googleapis.com/cvdf-datasets/mnist",
        ),
        ("mnist", ".", "MNIST", "MNIST/raw", "mnist/raw"),
    ),
    # Not in the data folder itself: its files are called as MNIST's are.
    "fashion-mnist": _idx(
        (
            "3aede38d61863908ad78613f6a32ed271626dd12800ba2636569512369268a84",
            "a04f17134ac03560a47e3764e11b92fc97de4d1bfaf8ba1a3aa29af54cc90845",
            "346e55b948d973a97e58d2351dde16a484bd415d4595297633bb08f03db6a073",
            "67da17c76eaffca5446c3361aaab5c3cd6d1c2608764d35dfb1850b086bf8dd5",
        ),
        (
            "https://raw.githubusercontent.com/zalandoresearch/fashion-mnist/master/data/fashion",
            "https://storage.googleapis.com/tensorflow/tf-keras-datasets",
        ),
        ("fashion-mnist", "fashion_mnist", "FashionMNIST", "FashionMNIST/raw", "fashion"),
    ),
    "cifar10": Source(
        _single(
            "cifar-10-binary.tar.gz",
            "c4a38c50a1bc5f3a1c5537f2155ab9d68f9f25eb1ed8d9ddda3db29a59bca1dd",
            "https://www.cs.toronto.edu/~kriz/cifar-10-binary.tar.gz",
            "https://cave.cs.toronto.edu/kriz/cifar-10-binary.tar.gz",
        ),
        (".", "cifar-10-batches-bin", "cifar10", "cifar10/cifar-10-batches-bin"),
        unpacked=("data_batch_1.bin",),
    ),
    "cifar100": Source(
        _single(
            "cifar-100-binary.tar.gz",
            "58a81ae192c23a4be8b1804d68e518ed807d710a4eb253b1f2a199162a40d8ec",
            "https://www.cs.toronto.edu/~kriz/cifar-100-binary.tar.gz",
            "https://cave.cs.toronto.edu/kriz/cifar-100-binary.tar.gz",
        ),
        (".", "cifar-100-binary", "cifar100", "cifar100/cifar-100-binary"),
        unpacked=("train.bin",),
    ),
    "news": Source(
        _single(
            "20news-bydate.tar.gz",
            "8f1b2514ca22a5ade8fbb9cfa5727df95fa587f4c87b786e15c759fa66d95610",
            "https://ndownloader.figshare.com/files/5975967",
            "https://qwone.com/~jason/20Newsgroups/20news-bydate.tar.gz",
        ),
        (".", "20news-bydate", "news", "20news"),
        unpacked=("20news-bydate-train",),
    ),
    "glove": Source(
        _single(
            "glove.6B.zip",
            "617afb2fe6cbd085c235baf7a465b96f4112bd7f7ccb2b2cbd649fed9cbcf2fb",
            "https://nlp.stanford.edu/data/glove.6B.zip",
            "https://downloads.cs.stanford.edu/nlp/data/glove.6B.zip",
        ),
        (".", "vectors", "glove"),
        unpacked=("glove.6B.300d.txt",),
        instead=("glove*.txt", "*/glove*.txt", "vectors/*.txt"),
    ),
    "tiny-imagenet": Source(
        _single(
            "tiny-imagenet-200.zip",
            "6198c8ae015e2b3e007c7841da39ec069199b9aa3bfa943a462022fe5e43c821",
            "https://cs231n.stanford.edu/tiny-imagenet-200.zip",
        ),
        (".", "tiny-imagenet-200", "tiny-imagenet", "tiny-imagenet/tiny-imagenet-200"),
        unpacked=("wnids.txt",),
    ),
    "svhn": Source(
        _single(
            "train_32x32.mat",
            "435e94d69a87fde4fd4d7f3dd208dfc32cb6ae8af2240d066de1df7508d083b8",
            "https://ufldl.stanford.edu/housenumbers/train_32x32.mat",
        ),
        ("svhn", ".", "SVHN"),
    ),
    "imagenet32": Source(
        _single("Imagenet32_train_npz.zip", "94226337ecc1b0309d9fcd0167127aaadc931587035fbcb53925235edbaec4fc"),
        (".", "imagenet32", "Imagenet32_train_npz", "Imagenet32_train", "imagenet32/Imagenet32_train_npz"),
        unpacked=("train_data_batch_1.npz",),
        by_hand="ask for an account at https://image-net.org/download-images",
    ),
}
