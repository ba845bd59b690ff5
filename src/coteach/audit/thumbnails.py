"""Small pictures of suspects for the review page: JPEG as data URIs, the smaller the more there are to show."""

import base64
import io
from collections.abc import Iterable, Iterator
from typing import Any

import numpy as np

from coteach.audit.images import use_image
from coteach.audit.samples import Samples

SIDES = ((300, 640), (600, 320), (2_000, 160), (10_000, 96))  # up to so many suspects: pixels of the longer side
LEAST_SIDE = 64
MOST_CHARACTERS = 40_000_000  # of all pictures together


def thumbnails(samples: Samples, index: np.ndarray) -> list[str | None] | None:
    """A data URI for each of these samples, None for one without a picture; None alone if they are no images."""
    ground = as_pictures(samples, index) if samples.paths is None else None
    if samples.paths is None and ground is None:
        return None
    uris: list[str | None] = []
    for side in [side for most, side in SIDES if len(index) <= most] or [LEAST_SIDE]:
        if samples.paths is not None:
            uris = [from_file(samples.paths[i], side) for i in index]
        elif ground is not None:
            uris = list(from_arrays(ground, side))
        if sum(len(uri or "") for uri in uris) <= MOST_CHARACTERS:
            break
    return list(up_to(MOST_CHARACTERS, uris))


def up_to(most: int, uris: Iterable[str | None]) -> Iterator[str | None]:
    """None once all together would be too long; the worst suspects come first and have theirs."""
    for uri in uris:
        most -= len(uri or "")
        yield uri if most >= 0 else None


def from_file(path: Any, side: int) -> str | None:
    try:
        return use_image(path, side, lambda image: as_uri(image, side))
    except ValueError:  # gone, or changed, since it was read
        return None


def as_pictures(samples: Samples, index: np.ndarray) -> np.ndarray | None:
    """Bytes (S, height, width) or (S, height, width, 3) of arrays that are images."""
    x = samples.x
    is_grey = x.ndim == 3 or (x.ndim == 4 and x.shape[1] == 1)
    if samples.what != "samples" or not (is_grey or (x.ndim == 4 and x.shape[1] == 3)) or not has_pillow():
        return None
    some = x[index]
    if some.dtype != np.uint8 and some.size:
        low, high = float(some.min()), float(some.max())
        some = ((some - low) * (255 / max(high - low, 1e-30))).round().astype(np.uint8)
    if some.ndim == 4:
        return some[:, 0] if is_grey else some.transpose(0, 2, 3, 1)
    return some


def from_arrays(ground: np.ndarray, side: int) -> Iterator[str]:
    from PIL import Image

    for pixels in ground:
        yield as_uri(Image.fromarray(np.ascontiguousarray(pixels)), side)


def as_uri(image: Any, side: int) -> str:
    image = image if image.mode in ("L", "RGB") else image.convert("L")
    image.thumbnail((side, side), reducing_gap=3.0)  # never larger than it was
    file = io.BytesIO()
    image.save(file, "JPEG", quality=85, optimize=True)
    return "data:image/jpeg;base64," + base64.b64encode(file.getvalue()).decode("ascii")


def has_pillow() -> bool:
    try:
        import PIL.Image  # noqa: F401
    except ImportError:
        return False
    return True
