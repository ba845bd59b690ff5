"""Images in a folder for each class: read, brought to one size, and shown small on the review page.

What cannot be used is named by its path.
"""

import base64
import io
import os
import warnings
from collections.abc import Callable, Iterable, Iterator, Sequence
from pathlib import Path
from types import ModuleType
from typing import Any, TypeVar

import numpy as np

from coteach.audit.samples import LabelledSamples, Skipped, readable
from coteach.turns import own_warning_filters

# Pictures only: Pillow hands some other formats, such as EPS, to outside programs.
IMAGE_FORMATS = (
    "PNG",
    "JPEG",
    "MPO",
    "GIF",
    "BMP",
    "DIB",
    "TIFF",
    "WEBP",
    "PPM",
    "JPEG2000",
    "AVIF",
    "ICO",
    "TGA",
    "PCX",
)
GREY = ("1", "L", "LA", "La", "I", "F", "I;16", "I;16L", "I;16B", "I;16N")
DEEP = ("I", "F", "I;16", "I;16L", "I;16B", "I;16N")  # more than 8 bits
WHITE = 255
IN_A_CLASS = "lies in no class folder"
LINKED_FOLDER = "a link to a folder, which is not followed"
HEIC = (b"heic", b"heix", b"heim", b"heis", b"hevc", b"hevx", b"mif1", b"msf1")

Made = TypeVar("Made")


class OddPixels(ValueError):
    """An image that is whole, but cannot be used."""


def read_images(
    folder: Path, size: int, progress: Callable[[int, int], None] = lambda done, total: None
) -> LabelledSamples:
    """Samples of shape (1, size, size) if all images are grey, in whatever kind of file, else (3, size, size).

    Links to files are followed, links to folders are not. The whole image is kept: what is not
    square gets margins in its mean colour. What is transparent lies on white.

    Parameters
    ----------
    progress : function
        Called with the number of files that were read, and of all.
    """
    pillow()  # or say at once that it is missing
    found, skipped = image_files(folder)
    pixels, kept = [], []
    for done, (label, path) in enumerate(found, start=1):
        try:
            pixels.append(read_image(path, size))
            kept.append((label, path))
        except ValueError as reason:
            skipped.append(Skipped(readable(path.relative_to(folder).as_posix()), str(reason)))
        progress(done, len(found))
    grey = all((image == image[:1]).all() for image in pixels)
    return LabelledSamples(
        x=stacked(pixels, 1 if grey else 3, size),
        y=np.array([readable(label) for label, _ in kept]),
        ids=[readable(path.relative_to(folder).as_posix()) for _, path in kept],
        kind="images",
        source=folder,
        skipped=tuple(sorted(skipped, key=lambda s: s.where)),
        paths=[path for _, path in kept],
        encoding={"kind": "images", "size": size, "channels": 1 if grey else 3},
        settings={"size": size},
    )


def read_new_images(paths: Iterable[Path], size: int, channels: int) -> np.ndarray:
    """Other images as the audit read its own; raises a ValueError that names the one that cannot be read."""
    pixels = []
    for path in paths:
        try:
            pixels.append(read_image(Path(path), size))
        except ValueError as reason:
            raise ValueError(f"{path} cannot be used: {reason}.") from reason
    return stacked(pixels, channels, size)


def stacked(pixels: list[np.ndarray], channels: int, size: int) -> np.ndarray:
    """One array (M, channels, size, size), of bytes unless an image has more than 8 bits."""
    dtype = np.float32 if any(image.dtype != np.uint8 for image in pixels) else np.uint8
    x = np.empty((len(pixels), channels, size, size), dtype)
    for row, image in zip(x, pixels, strict=True):
        row[:] = image if len(image) <= channels else image.mean(0, keepdims=True)
    return x


def image_files(folder: Path) -> tuple[list[tuple[str, Path]], list[Skipped]]:
    """(class, file) for every file below a class folder, sorted; what is hidden is passed over in silence."""
    found, skipped = [], []
    try:
        entries = sorted(entry for entry in folder.iterdir() if not entry.name.startswith("."))
    except OSError as error:
        raise ValueError(f"{folder} cannot be read ({error.strerror}): give another folder.") from error
    for entry in entries:
        if not os.path.isdir(entry):  # unlike Path.is_dir, also where nobody may look
            skipped.append(Skipped(readable(entry.name), IN_A_CLASS))
            continue
        if entry.is_symlink():
            skipped.append(Skipped(readable(entry.name), LINKED_FOLDER))
            continue
        files = list(files_below(entry, folder, skipped))
        if not files:
            skipped.append(Skipped(readable(f"{entry.name}/"), "a class folder without a file"))
        found += [(entry.name, path) for path in files]
    if not found:
        raise ValueError(f"{folder} has no folders with images in them: make one for each class.")
    return found, skipped


def files_below(top: Path, folder: Path, skipped: list[Skipped]) -> Iterator[Path]:
    def skip(path: Path, why: str) -> None:
        skipped.append(Skipped(readable(path.relative_to(folder).as_posix()), why))

    def unreadable(error: OSError) -> None:
        skip(Path(error.filename), f"a folder that cannot be read ({error.strerror})")

    for where, folders, files in os.walk(top, onerror=unreadable):
        for name in [name for name in folders if (Path(where) / name).is_symlink()]:
            skip(Path(where) / name, LINKED_FOLDER)
        folders[:] = sorted(name for name in folders if not name.startswith("."))
        yield from (Path(where) / name for name in sorted(files) if not name.startswith("."))


def read_image(path: Path, size: int) -> np.ndarray:
    """Array (1 or 3, size, size): uint8, or float32 on the same scale from an image of more than 8 bits."""
    return use_image(path, size, lambda image: fitted(image, size))


def use_image(path: Path, size: int, use: Callable[[Any], Made]) -> Made:
    """Whatever is made of the upright image, which need not have more detail than so many pixels take."""
    image_module = pillow()
    try:
        regular = path.is_file()
    except OSError as error:  # a link to where nobody may look
        raise ValueError(f"cannot be opened: {error.strerror}") from error
    if not regular:
        raise ValueError("not a file")  # a pipe would be waited for without end, a broken link leads nowhere
    try:
        with own_warning_filters():
            warnings.simplefilter("ignore")
            warnings.simplefilter("error", image_module.DecompressionBombWarning)
            with image_module.open(path, formats=formats(image_module)) as image:
                image.draft(None, (2 * size, 2 * size))  # a large JPEG need not be decoded in full
                return use(upright(image))
    except image_module.UnidentifiedImageError:
        raise ValueError("HEIC cannot be read: convert it to JPEG" if is_heic(path) else "not an image") from None
    except (image_module.DecompressionBombWarning, image_module.DecompressionBombError):
        most = (image_module.MAX_IMAGE_PIXELS or 0) / 1e6
        raise ValueError(f"an image of more than {most:.0f} megapixels") from None
    except OddPixels:
        raise
    except Exception as error:  # decoders meet damaged files with exceptions of every kind
        refused = isinstance(error, OSError) and error.strerror  # by the system, not by a decoder
        raise ValueError(f"cannot be opened: {refused}" if refused else "damaged") from error


def is_heic(path: Path) -> bool:
    """As telephones save photographs, sometimes under another name."""
    try:
        with path.open("rb") as file:
            head = file.read(12)
    except OSError:  # it has gone meanwhile
        return False
    return head[4:8] == b"ftyp" and head[8:] in HEIC


def upright(image: Any) -> Any:
    """The image as it is to be seen: turned as the camera was held, without transparency, grey or in colour."""
    from PIL import Image, ImageOps

    image = ImageOps.exif_transpose(image)
    if image.mode in DEEP:
        return Image.fromarray(eight_bit_scale(np.asarray(image), image.mode))
    if image.mode in ("RGBA", "LA", "PA", "RGBa", "La") or "transparency" in image.info:
        seen = image.convert("RGBA")
        white = Image.new("RGBA", seen.size, (WHITE, WHITE, WHITE, WHITE))
        flat = Image.alpha_composite(white, seen).convert("RGB")
        return flat.convert("L") if image.mode in GREY else flat
    return image.convert("L" if image.mode in GREY else "RGB")


def eight_bit_scale(values: np.ndarray, mode: str) -> np.ndarray:
    """float32 from 0 to 255, of 16 bits, or of floats that may have any range."""
    values = values.astype(np.float32)
    if mode == "F" or values.max() > 65535 or values.min() < 0:
        if not np.isfinite(values).all():
            raise OddPixels("pixels that are not finite")
        values = values - values.min()
        return values * (255 / max(float(values.max()), 1e-30))
    return values / 257


def fitted(image: Any, size: int) -> np.ndarray:
    """Array (channels, size, size): the whole image, with margins in its mean colour if it is not square."""
    from PIL import Image

    scale = size / max(image.size)
    width, height = (max(1, round(side * scale)) for side in image.size)
    small = np.asarray(image.resize((width, height), Image.Resampling.BILINEAR, reducing_gap=3.0))
    small = small[None] if small.ndim == 2 else small.transpose(2, 0, 1)
    mean = small.mean((1, 2), keepdims=True).astype(small.dtype)
    whole = np.broadcast_to(mean, (len(small), size, size)).copy()
    top, left = (size - height) // 2, (size - width) // 2
    whole[:, top : top + height, left : left + width] = small
    return whole


def formats(image_module: ModuleType) -> list[str]:
    """Those of ours that this Pillow can read."""
    image_module.init()
    return [name for name in IMAGE_FORMATS if name in image_module.OPEN]


def pillow() -> ModuleType:
    try:
        from PIL import Image
    except ImportError as error:
        raise ValueError("images need Pillow: pip install pillow.") from error
    return Image


# ---- thumbnails for the review page: JPEG as data URIs, the smaller the more there are to show ------------------

SIDES = ((300, 640), (600, 320), (2_000, 160), (10_000, 96))  # up to so many suspects: pixels of the longer side
LEAST_SIDE = 64
MOST_PICTURE_CHARACTERS = 40_000_000  # of all pictures together


def thumbnails(
    samples: LabelledSamples, index: np.ndarray, sides: Sequence[int] = (), most: int | None = None
) -> list[str | None] | None:
    """A data URI for each of these samples, None for one without a picture; None alone if they are no images.

    Of the sides that are given, or that suit so many, the first with which all fit into `most` characters.
    """
    most = MOST_PICTURE_CHARACTERS if most is None else most
    pictures = as_pictures(samples, index) if samples.paths is None else None
    if samples.paths is None and pictures is None:
        return None
    uris: list[str | None] = []
    for side in sides or [side for n, side in SIDES if len(index) <= n] or [LEAST_SIDE]:
        if samples.paths is not None:
            uris = [thumbnail_of_file(samples.paths[i], side) for i in index]
        elif pictures is not None:
            uris = list(thumbnails_of_arrays(pictures, side))
        if sum(len(uri or "") for uri in uris) <= most:
            break
    return list(within_limit(most, uris))


def within_limit(most: int, uris: Iterable[str | None]) -> Iterator[str | None]:
    """None once all together would be too long; the worst suspects come first and have theirs."""
    for uri in uris:
        most -= len(uri or "")
        yield uri if most >= 0 else None


def thumbnail_of_file(path: Any, side: int) -> str | None:
    try:
        return use_image(path, side, lambda image: jpeg_uri(image, side))
    except ValueError:  # gone, or changed, since it was read
        return None


def as_pictures(samples: LabelledSamples, index: np.ndarray) -> np.ndarray | None:
    """Bytes (S, height, width) or (S, height, width, 3) of arrays that are images."""
    x = samples.x
    is_grey = x.ndim == 3 or (x.ndim == 4 and x.shape[1] == 1)
    if samples.kind != "arrays" or not (is_grey or (x.ndim == 4 and x.shape[1] == 3)) or not has_pillow():
        return None
    some = x[index]
    if some.dtype != np.uint8 and some.size:
        low, high = float(some.min()), float(some.max())
        some = ((some - low) * (255 / max(high - low, 1e-30))).round().astype(np.uint8)
    if some.ndim == 4:
        return some[:, 0] if is_grey else some.transpose(0, 2, 3, 1)
    return some


def thumbnails_of_arrays(pictures: np.ndarray, side: int) -> Iterator[str]:
    from PIL import Image

    for pixels in pictures:
        yield jpeg_uri(Image.fromarray(np.ascontiguousarray(pixels)), side)


def jpeg_uri(image: Any, side: int) -> str:
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
