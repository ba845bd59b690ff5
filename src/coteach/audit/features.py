"""Images and texts as features of a frozen network, in batches, kept for the next time.

M samples, B of a batch, F features.
"""

import re
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from coteach.audit.images import fitted, read_image
from coteach.checks import check_count
from coteach.encoders.kept import KeptFeatures, content_hash
from coteach.encoders.named import (
    IMAGE_SIDE,
    ChosenEncoder,
    Encoder,
    chosen_for_images,
    chosen_for_texts,
    image_encoder,
    text_encoder,
)
from coteach.engine.setup import chosen_device

BATCH_OF_SAMPLES = 32
LOOKED_AT, LOOKED_SIDE = 64, 32  # samples to choose an encoder by, and their pixels
OVERSHOOT = 0.1  # beyond black and white, as of images that were resized or sharpened as floats

Progress = Callable[[int, int], None]


def no_progress(done: int, total: int) -> None:
    pass


@dataclass(frozen=True)
class SampleReader:
    """How samples of a kind reach an encoder: what each holds, what is read of it, and several together."""

    content: Callable[[Any], bytes]
    read: Callable[[Any], Any]
    together: Callable[[list[Any]], Any]


def encode(
    samples: Any,
    encoder: Any = "auto",
    *,
    size: int | None = None,
    batch_size: int = BATCH_OF_SAMPLES,
    device: str = "auto",
    cache: str | Path | None = None,
    progress: Progress = no_progress,
) -> np.ndarray:
    """Turn images or texts into features with a pretrained network.

    Parameters
    ----------
    samples : array, list of paths, or list of str
        Images as an array of shape (M, height, width), (M, 1 or 3, height, width) or (M, height, width, 3), with
        pixels from 0 to 255, or from 0 to 1 if they are floats; image files as `pathlib.Path`; or texts.
    encoder : str or callable
        "auto" takes what is installed: efficientnet-lite0 for images, wordllama for texts. Other choices are a
        .safetensors file, package.module:function, timm:NAME, hf:NAME or st:NAME. A torch module gets batches
        (B, 3, size, size) of floats from 0 to 255. Any other callable gets such a batch as an array, or a list of
        texts. It returns (B, F).
    size : int, optional
        Width and height to which images are resized, in pixels; by default the encoder's own.
    batch_size : int
        Samples that go through the encoder together.
    device : str
        auto, cpu, cuda or cuda:1.
    cache : path, optional
        Folder that keeps the features; samples with the same content are not encoded again.
    progress : function
        Called with the number of samples done and the number of all.

    Returns
    -------
    float32 array of shape (M, F)

    Examples
    --------
    >>> coteach.encode(["a cat", "a dog and a cat"], lambda texts: [[t.count("cat"), len(t)] for t in texts])
    array([[ 1.,  5.],
           [ 1., 15.]], dtype=float32)
    """
    if isinstance(samples, str | Path) or not len(samples):
        raise ValueError("samples are one alone or none: give a list of texts or paths, or an array of images.")
    check_count("batch_size", batch_size, 1)
    if is_list_of(str, samples):
        made = text_encoder(
            named_or_best(encoder, lambda: chosen_for_texts(some_of(samples))), chosen_device(device)
        )
        return encoded(samples, made, of_texts(), batch_size, cache, progress)
    if is_list_of(Path, samples):
        best = named_or_best(
            encoder, lambda: chosen_for_images([naming(read_image)(p, LOOKED_SIDE) for p in some_of(samples)])
        )
        made = image_encoder(best, size, chosen_device(device))
        plain = of_files(made)
        reader = SampleReader(naming(plain.content), naming(plain.read), plain.together)
        return encoded(samples, made, reader, batch_size, cache, progress)
    pictures = as_images(samples)
    best = named_or_best(encoder, lambda: chosen_for_images(some_of(pictures)))
    made = image_encoder(best, size, chosen_device(device))
    return encoded(pictures, made, of_arrays(made), batch_size, cache, progress)


def named_or_best(encoder: Any, choose: Callable[[], ChosenEncoder]) -> Any:
    """What the user names, or what is best; there has to be one."""
    if isinstance(encoder, str) and encoder == "none":
        raise ValueError("encoder is none, which makes no features: give auto, or name one.")
    if not isinstance(encoder, str) or encoder != "auto":
        return encoder
    choice = choose()
    if choice.name == "none":
        raise ValueError(f"auto finds no encoder for these samples ({choice.why}): name one.")
    return choice.name


def is_list_of(kind: type, samples: Any) -> bool:
    return not hasattr(samples, "dtype") and all(isinstance(one, kind) for one in samples)


def some_of(samples: Any) -> list[Any]:
    """A few samples, evenly over all."""
    index = np.unique(np.linspace(0, len(samples) - 1, min(len(samples), LOOKED_AT)).astype(int))
    return [samples[i] for i in index.tolist()]


def encoded(
    samples: Any,
    encoder: Encoder,
    reader: SampleReader,
    batch_size: int = BATCH_OF_SAMPLES,
    cache: str | Path | None = None,
    progress: Progress = no_progress,
    unusable: dict[int, str] | None = None,
) -> np.ndarray:
    """Features (M, F); what is in the cache, or comes twice, is not made again.

    A sample that cannot be read is left out, and named with the reason in `unusable`, if there is one; else its
    ValueError is raised.
    """
    kept = KeptFeatures(cache_file(cache, encoder))
    keys: list[bytes] = []
    try:
        for begin in range(0, len(samples), batch_size):
            fresh: dict[bytes, Any] = {}
            for i in range(begin, min(begin + batch_size, len(samples))):
                try:
                    key = content_hash(reader.content(samples[i]))
                    if key not in kept and key not in fresh:
                        fresh[key] = reader.read(samples[i])
                    keys.append(key)
                except ValueError as reason:
                    if unusable is None:
                        raise
                    unusable[i] = str(reason)
            if fresh:
                made = checked_features(encoder, encoder.apply(reader.together(list(fresh.values()))), len(fresh))
                kept.rows |= zip(fresh, made, strict=True)
            progress(min(begin + batch_size, len(samples)), len(samples))
    finally:  # what was made so far is kept, whatever ends it
        kept.write()
    widths = {len(kept.rows[key]) for key in keys}
    if len(widths) > 1:
        raise ValueError(
            f"the encoder {encoder.name} makes {sorted(widths)} features: make as many of each sample."
        )
    return np.stack([kept.rows[key] for key in keys]) if keys else np.zeros((0, 1), np.float32)


def checked_features(encoder: Encoder, made: Any, n: int) -> np.ndarray:
    x = np.asarray(made.detach().cpu() if hasattr(made, "detach") else made)
    if x.ndim == 0 or len(x) != n or x.dtype.kind not in "fiu":
        raise ValueError(
            f"the encoder {encoder.name} makes an array of shape {x.shape} and type {x.dtype} of {n} samples: "
            "return a row of numbers for each."
        )
    x = x.reshape(n, -1).astype(np.float32)
    if not np.isfinite(x).all():
        raise ValueError(f"the encoder {encoder.name} makes features that are not finite numbers: give another.")
    return x


def cache_file(cache: str | Path | None, encoder: Encoder) -> Path | None:
    """One for each encoder and size; None where it cannot be said whether an encoder is the same as before."""
    if cache is None or encoder.identity is None:
        return None
    name = re.sub(r"[^A-Za-z0-9.-]+", "-", Path(encoder.name).name)[:40]
    side = "" if encoder.size is None else f"-{encoder.size}"
    return Path(cache) / f"{name}{side}-{encoder.identity[:12]}.safetensors"


# ---- texts, files of images, arrays of images -------------------------------------------------------------------


def of_texts() -> SampleReader:
    return SampleReader(lambda text: text.encode("utf-8", "surrogatepass"), lambda text: text, list)


def of_files(encoder: Encoder) -> SampleReader:
    return SampleReader(bytes_of_file, lambda path: read_image(path, encoder.size or IMAGE_SIDE), in_colour)


def of_arrays(encoder: Encoder) -> SampleReader:
    def content(image: np.ndarray) -> bytes:
        return f"{image.shape}{image.dtype}".encode() + image.tobytes()

    return SampleReader(content, lambda image: resized(image, encoder.size or IMAGE_SIDE), in_colour)


def bytes_of_file(path: Path) -> bytes:
    if not path.is_file():
        raise ValueError("not a file")  # a pipe would be waited for without end
    try:
        return path.read_bytes()
    except OSError as error:
        raise ValueError(f"cannot be opened: {error.strerror}") from error


def naming(use: Callable[..., Any]) -> Callable[..., Any]:
    """The same for a path, which is then named in its ValueError."""

    def named(path: Path, *more: Any) -> Any:
        try:
            return use(path, *more)
        except ValueError as reason:
            raise ValueError(f"{path} cannot be used: {reason}.") from reason

    return named


def in_colour(images: Iterable[np.ndarray]) -> np.ndarray:
    """Array (B, 3, size, size); a grey image has three equal colours."""
    return np.stack([np.broadcast_to(image, (3, *image.shape[1:])) for image in images])


def as_images(samples: Any) -> np.ndarray:
    """Array (M, 1 or 3, height, width) from 0 to 255."""
    x = np.asarray(samples)
    if x.ndim == 3:
        x = x[:, None]
    elif x.ndim == 4 and x.shape[1] not in (1, 3) and x.shape[3] in (1, 3):
        x = x.transpose(0, 3, 1, 2)
    if x.ndim != 4 or x.shape[1] not in (1, 3) or x.dtype.kind not in "uif":
        raise ValueError(
            f"samples are an array of shape {x.shape} and type {x.dtype}: give images such as "
            "(M, 3, height, width), a list of pathlib.Path, or a list of texts."
        )
    if not np.isfinite(x).all():
        raise ValueError("images have pixels that are not finite numbers: mend or drop them.")
    if x.min() < -OVERSHOOT * x.max() or x.max() > (1 + OVERSHOOT) * 255:
        raise ValueError(
            f"images have pixels from {x.min():.4g} to {x.max():.4g}: give 0 to 255, or floats from 0 to 1."
        )
    if x.dtype.kind == "f":
        return (x * 255 if x.max() <= 1 + OVERSHOOT else x).astype(np.float32)
    return x


def resized(image: np.ndarray, size: int) -> np.ndarray:
    """As an image file is brought to a size."""
    from PIL import Image

    whole = image if image.dtype == np.uint8 else image.clip(0, 255).round().astype(np.uint8)
    pixels = whole.transpose(1, 2, 0) if len(whole) == 3 else whole[0]
    return fitted(Image.fromarray(np.ascontiguousarray(pixels)), size)
