"""Folders of images: what is read, how it is brought to one size, and what is named instead of read."""

import json
import os
import re
import sys
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from PIL import Image, UnidentifiedImageError

from coteach.audit.encoding import features
from coteach.audit.images import fitted, read_image, read_images, read_new_images
from coteach.cli import main
from permissions import needs_users, ordinary_user, public_folder


def picture(level: int = 100, size: tuple[int, int] = (8, 8), mode: str = "RGB") -> Image.Image:
    return Image.new(mode, size, level if mode in ("L", "I", "F", "I;16") else (level,) * len(mode))


@pytest.fixture
def folder(tmp_path):
    """Two classes, dark and light, of ten images each; colour of the second half of each is noise."""
    random = np.random.default_rng(0)
    for label, level in (("dark", 40), ("light", 200)):
        for i in range(10):
            path = tmp_path / "pictures" / label / f"{i:02}.png"
            path.parent.mkdir(parents=True, exist_ok=True)
            pixels = random.integers(level - 30, level + 30, (12, 12, 3)).astype(np.uint8)
            Image.fromarray(pixels).save(path)
    return tmp_path / "pictures"


def why(samples, where: str) -> str:
    (reason,) = (skipped.why for skipped in samples.skipped if skipped.where == where)
    return reason


def test_a_folder_for_each_class(folder):
    samples = read_images(folder, 32)
    assert samples.x.shape == (20, 3, 32, 32)
    assert samples.x.dtype == np.uint8
    assert samples.counts == {"dark": 10, "light": 10}
    assert samples.ids[0] == "dark/00.png"
    assert samples.paths is not None
    assert samples.paths[0] == folder / "dark" / "00.png"
    assert samples.skipped == ()
    assert samples.x[samples.y == "dark"].mean() < 60 < 180 < samples.x[samples.y == "light"].mean()


def test_files_in_folders_below_belong_to_the_class_on_top(folder):
    (folder / "dark" / "more" / "deep").mkdir(parents=True)
    picture().save(folder / "dark" / "more" / "deep" / "x.png")
    samples = read_images(folder, 8)
    assert "dark/more/deep/x.png" in samples.ids
    assert samples.counts["dark"] == 11


def test_what_is_hidden_is_passed_over_in_silence(folder):
    (folder / ".git").mkdir()
    for path in (folder / ".git" / "x.png", folder / ".DS_Store", folder / "dark" / ".x.png"):
        path.write_bytes(b"")
    (folder / "dark" / ".cache").mkdir()
    picture().save(folder / "dark" / ".cache" / "x.png")
    samples = read_images(folder, 8)
    assert (len(samples), samples.skipped) == (20, ())


def test_what_cannot_be_read_is_told_by_its_path(folder):
    whole = (folder / "dark" / "00.png").read_bytes()
    (folder / "dark" / "cut.png").write_bytes(whole[: len(whole) // 2])
    (folder / "dark" / "notes.txt").write_text("hello")
    (folder / "dark" / "empty.jpg").touch()
    (folder / "dark" / "telephone.jpg").write_bytes(b"\0\0\0\x24ftypheic" + bytes(40))
    (folder / "loose.png").write_bytes(whole)
    (folder / "nothing").mkdir()
    os.mkfifo(folder / "light" / "pipe.png")
    (folder / "light" / "gone.png").symlink_to(folder / "nowhere.png")
    samples = read_images(folder, 8)
    assert len(samples) == 20
    assert why(samples, "dark/cut.png") == "damaged"
    assert why(samples, "dark/notes.txt") == "not an image"
    assert why(samples, "dark/empty.jpg") == "not an image"
    assert why(samples, "dark/telephone.jpg") == "HEIC cannot be read: convert it to JPEG"
    assert why(samples, "loose.png") == "lies in no class folder"
    assert why(samples, "nothing/") == "a class folder without a file"
    assert why(samples, "light/pipe.png") == "not a file"
    assert why(samples, "light/gone.png") == "not a file"
    assert len(samples.skipped) == 8


def test_every_byte_that_breaks_leaves_an_image_or_a_reason(tmp_path):
    """Whatever the decoder raises, one damaged file must not end the reading."""
    path = tmp_path / "x.png"
    picture(size=(20, 20)).save(path)
    whole = path.read_bytes()
    for i in range(0, len(whole), 3):
        path.write_bytes(whole[:i] + bytes([whole[i] ^ 0xFF]) + whole[i + 1 :])
        try:
            assert read_image(path, 8).shape == (3, 8, 8)
        except ValueError as reason:
            assert str(reason)


def test_links_to_files_are_read_and_links_to_folders_are_not(folder, tmp_path):
    picture().save(tmp_path / "outside.png")
    (tmp_path / "elsewhere").mkdir()
    picture().save(tmp_path / "elsewhere" / "y.png")
    (folder / "dark" / "link.png").symlink_to(tmp_path / "outside.png")
    (folder / "dark" / "loop").symlink_to(folder)
    (folder / "dark" / "away").symlink_to(tmp_path / "elsewhere")
    samples = read_images(folder, 8)
    assert len(samples) == 21
    assert "dark/link.png" in samples.ids
    assert why(samples, "dark/loop") == why(samples, "dark/away") == "a link to a folder, which is not followed"


def test_a_link_in_the_place_of_a_class_is_not_followed(folder):
    """A hostile test linked a class to the root of the file system: 351,695 files were walked through."""
    (folder / "root").symlink_to("/")
    samples = read_images(folder, 8)
    assert len(samples) == 20
    assert why(samples, "root") == "a link to a folder, which is not followed"


@needs_users
def test_what_may_not_be_looked_at_is_skipped_and_named():
    with public_folder() as folder:
        (folder / "closed").mkdir()
        for label, shade in (("dark", 40), ("light", 200)):
            (folder / label).mkdir()
            for n in range(3):
                picture(shade).save(folder / label / f"{n}.png")
            picture(shade).save(folder / "closed" / f"{label}.png")
        (folder / "closed").chmod(0)
        (folder / "dark" / "0.png").chmod(0)
        (folder / "dark" / "link.png").symlink_to(folder / "closed" / "dark.png")
        (folder / "entry").symlink_to(folder / "closed" / "dark.png")
        with ordinary_user():
            samples = read_images(folder, 8)
    assert len(samples) == 5
    assert why(samples, "dark/0.png") == why(samples, "dark/link.png") == "cannot be opened: Permission denied"
    assert why(samples, "closed") == "a folder that cannot be read (Permission denied)"
    assert why(samples, "entry") == "lies in no class folder"


def test_a_file_that_goes_while_it_is_read_is_skipped(folder, monkeypatch):
    odd = folder / "dark" / "odd.png"
    odd.write_bytes(b"no image")
    real = Image.open

    def opened(path, *arguments, **options):
        if path == odd:
            odd.unlink()
            raise UnidentifiedImageError
        return real(path, *arguments, **options)

    monkeypatch.setattr(Image, "open", opened)
    assert why(read_images(folder, 8), "dark/odd.png") == "not an image"


def test_a_decompression_bomb_is_refused(folder, monkeypatch):
    monkeypatch.setattr(Image, "MAX_IMAGE_PIXELS", 1000)
    picture(size=(40, 40), mode="L").save(folder / "dark" / "large.png")  # a warning of Pillow's
    picture(size=(60, 60), mode="L").save(folder / "dark" / "larger.png")  # an error
    samples = read_images(folder, 8)
    assert len(samples) == 20
    assert "megapixels" in why(samples, "dark/large.png")
    assert "megapixels" in why(samples, "dark/larger.png")


def test_no_format_that_runs_another_program_is_opened(folder):
    (folder / "dark" / "x.eps").write_text("%!PS-Adobe-3.0 EPSF-3.0\n%%BoundingBox: 0 0 8 8\n%%EndComments\n")
    assert why(read_images(folder, 8), "dark/x.eps") == "not an image"


@pytest.mark.parametrize("name", ["x.jpg", "x.gif", "x.bmp", "x.tif", "x.webp", "x.ppm", "x.tga"])
def test_the_usual_formats_are_read(name, tmp_path):
    picture(120, (16, 16)).save(tmp_path / name)
    assert np.abs(read_image(tmp_path / name, 8).astype(int) - 120).max() < 6


@pytest.mark.parametrize(
    "image, level",
    [
        (picture(77, mode="L"), 77),
        (Image.new("1", (8, 8), 1), 255),
        (picture(77 * 257, mode="I;16"), 77),
        (Image.new("LA", (8, 8), (77, 255)), 77),
        (Image.new("LA", (8, 8), (0, 0)), 255),  # what is transparent lies on white
    ],
)
def test_grey_images_stay_grey(image, level, tmp_path):
    image.save(tmp_path / "x.png")
    read = read_image(tmp_path / "x.png", 4)
    assert read.shape == (1, 4, 4)
    assert np.allclose(read, level, atol=1)


def test_colours_palettes_and_transparency(tmp_path):
    red = Image.new("RGB", (8, 8), (200, 0, 0))
    clear = Image.new("RGBA", (8, 8), (200, 0, 0, 0))
    cases = {
        "rgb.png": (red, (200, 0, 0)),
        "palette.png": (red.quantize(4), (200, 0, 0)),
        "opaque.png": (Image.new("RGBA", (8, 8), (200, 0, 0, 255)), (200, 0, 0)),
        "clear.png": (clear, (255, 255, 255)),
        "cmyk.jpg": (Image.new("CMYK", (8, 8), (0, 255, 255, 0)), (254, 0, 0)),
    }
    for name, (image, colour) in cases.items():
        image.save(tmp_path / name)
        read = read_image(tmp_path / name, 4)
        assert read.shape == (3, 4, 4)
        assert np.abs(read.mean((1, 2)) - colour).max() < 3, name


def test_sixteen_bits_keep_what_eight_would_lose(tmp_path):
    for value in (1000, 1100):
        Image.new("I;16", (8, 8), value).save(tmp_path / f"{value}.png")
    dark, light = (read_image(tmp_path / f"{value}.png", 8) for value in (1000, 1100))
    assert dark.dtype == np.float32
    assert light.mean() - dark.mean() == pytest.approx(100 / 257, rel=1e-3)


def test_sixteen_bits_stored_as_thirty_two_are_read_alike(tmp_path):
    picture(77 * 257, mode="I").save(tmp_path / "x.tif")
    assert np.allclose(read_image(tmp_path / "x.tif", 8), 77)


def test_floats_of_any_range_are_read(tmp_path):
    ramp = np.linspace(-3, 5, 64, dtype=np.float32).reshape(8, 8)
    Image.fromarray(ramp).save(tmp_path / "x.tif")
    read = read_image(tmp_path / "x.tif", 8)
    assert (read.min(), read.max()) == pytest.approx((0, 255))
    Image.fromarray(np.full((8, 8), np.nan, np.float32)).save(tmp_path / "x.tif")
    with pytest.raises(ValueError, match="not finite"):
        read_image(tmp_path / "x.tif", 8)


def test_a_photograph_is_turned_as_the_camera_was_held(tmp_path):
    image = Image.fromarray(np.repeat(np.array([[0, 255]], np.uint8), 2, 0).repeat(8, 0).repeat(8, 1))
    exif = Image.Exif()
    exif[0x0112] = 6  # a quarter turn
    image.save(tmp_path / "x.png", exif=exif)
    read = read_image(tmp_path / "x.png", 8)[0]
    assert read[:3].mean() < 20
    assert read[-3:].mean() > 235


def test_grey_and_colour_together_become_colour(folder):
    picture(90, mode="L").save(folder / "dark" / "grey.png")
    samples = read_images(folder, 8)
    assert samples.x.shape[1] == 3
    assert (samples.x[samples.ids.index("dark/grey.png")] == 90).all()


def test_grey_images_in_files_for_colour_have_one_channel(tmp_path):
    (tmp_path / "a").mkdir()
    for i, level in enumerate((3, 250)):
        picture(level).save(tmp_path / "a" / f"{i}.png")
        picture(level).save(tmp_path / "a" / f"{i}.jpg")
    samples = read_images(tmp_path, 8)
    assert samples.x.shape == (4, 1, 8, 8)
    assert samples.x[0].max() == samples.x[0].min() == 3
    assert samples.encoding["channels"] == 1


def test_grey_and_deep_images_alone_have_one_channel(tmp_path):
    for label in "ab":
        (tmp_path / label).mkdir()
        picture(90, mode="L").save(tmp_path / label / "1.png")
        picture(90 * 257, mode="I;16").save(tmp_path / label / "2.png")
    samples = read_images(tmp_path, 8)
    assert samples.x.shape == (4, 1, 8, 8)
    assert np.allclose(samples.x, 90)


@given(
    st.integers(1, 60), st.integers(1, 60), st.integers(4, 40), st.sampled_from(["L", "RGB"]), st.integers(0, 255)
)
def test_an_image_of_any_size_fits_and_keeps_its_level(width, height, size, mode, level):
    x = fitted(picture(level, (width, height), mode), size)
    assert x.shape == (len(mode), size, size)
    assert (x == level).all()  # also in the margins


def test_the_whole_of_a_long_image_is_kept_between_margins():
    strip = np.zeros((8, 32), np.uint8)
    strip[:, 16:] = 200
    x = fitted(Image.fromarray(strip), 16)[0]
    assert (x[6:10, :7] == 0).all()
    assert (x[6:10, 9:] == 200).all()
    assert (x[:6] == 100).all()
    assert (x[10:] == 100).all()


@pytest.mark.parametrize("label", ["ünïcode", "a b", "=1+1", "<script>", 'quo"te', "comma,comma", "[bold]"])
def test_odd_names_of_classes_are_kept(label, folder):
    (folder / "dark").rename(folder / label)
    samples = read_images(folder, 8)
    assert label in samples.counts
    assert f"{label}/00.png" in samples.ids


def test_a_name_that_is_no_unicode_can_be_written(folder):
    odd = os.fsdecode(b"caf\xe9")
    (folder / "dark").rename(folder / odd)
    samples = read_images(folder, 8)
    assert sorted(samples.counts) == ["caf\\udce9", "light"]
    "".join(samples.ids).encode("utf-8")


def test_a_folder_without_classes_is_refused(tmp_path):
    with pytest.raises(ValueError, match="make one for each class"):
        read_images(tmp_path, 8)


def test_without_pillow_it_is_named(folder, monkeypatch):
    monkeypatch.setitem(sys.modules, "PIL", None)
    with pytest.raises(ValueError, match="pip install pillow"):
        read_images(folder, 8)


def test_new_images_are_read_as_the_old_ones(folder):
    samples = read_images(folder, 16)
    assert (read_new_images(samples.paths or [], 16, 3) == samples.x).all()
    grey = read_new_images([folder / "dark" / "00.png"], 16, 1)  # colour to an audit of grey images
    assert grey.shape == (1, 1, 16, 16)
    (folder / "broken.png").write_text("")
    with pytest.raises(ValueError, match=re.escape("broken.png cannot be used")):
        read_new_images([folder / "broken.png"], 16, 3)


def audited(folder: Path, *flags: str) -> dict:
    main(["audit", "--images", str(folder), "--out", "out", "--epochs", "1", "--noise-rate", "0.1", *flags])
    return json.loads(Path("out/summary.json").read_text())["settings"]["network"]


def test_every_piece_of_the_recipe_has_a_flag(folder, monkeypatch):
    monkeypatch.chdir(folder.parent)
    numbers = {"strong_view": 1, "cutout": 2, "shift": 1, "mixup": 0.5, "label_smoothing": 0.1, "lookahead": 3}
    numbers |= {"one_cycle": 0.2, "lr": 0.5, "momentum": 0.8, "weight_decay": 0.01, "memory_weight": 2.0}
    numbers |= {"class_balance": 0.5}
    answers = dict.fromkeys(("mirror", "weak_selection", "nesterov", "decoupled_decay"), "no")
    given = [f"--{name.replace('_', '-')}={value}" for name, value in (numbers | answers).items()]
    audited(folder, "--size", "16", "--width", "0.125", "--device", "cpu", "--optimizer", "sgd", *given)
    settings = json.loads(Path("out/summary.json").read_text())["settings"]["classifier"]
    assert settings["optimizer"] == "sgd"
    for name, value in (numbers | answers).items():
        of_optimizer = name in ("momentum", "weight_decay", "nesterov")
        assert settings[f"optimizer__{name}" if of_optimizer else name] == (False if value == "no" else value)


@pytest.mark.parametrize(
    "flags, mirrored, told",
    [([], True, True), (["--mirror", "yes"], True, False), (["--mirror", "no"], False, False)],
)
def test_mirrored_images_are_told_unless_asked_for(flags, mirrored, told, folder, monkeypatch, capsys):
    monkeypatch.chdir(folder.parent)
    network = audited(folder, "--size", "16", "--width", "0.125", "--device", "cpu", *flags)
    assert network == {"name": "fast_cnn", "width": 0.125, "mirror": mirrored}
    assert ("give --mirror no" in capsys.readouterr().out) == told


@pytest.mark.parametrize(
    "flags, message, read",
    [
        (["--cutout", "-1"], "cutout is -1", False),
        (["--mixup", "nan"], "mixup is nan", False),
        (["--recipe", "paper", "--width", "2"], "small_cnn has one width only: leave --width out", True),
        (["--size", "8", "--width", "2"], "mlp has one width only: leave --width out", True),
    ],
)
def test_a_mistake_in_a_recipe_is_told_as_soon_as_it_shows(flags, message, read, folder, monkeypatch, capsys):
    monkeypatch.chdir(folder.parent)
    with pytest.raises(SystemExit):
        audited(folder, *flags)
    said = capsys.readouterr()
    assert message in said.err
    assert ("reading" in said.out) == read


def test_the_command_on_images_and_the_lines_that_load_its_model(folder, monkeypatch, capsys):
    monkeypatch.chdir(folder.parent)
    (folder / "dark" / "broken.png").write_text("no image")
    main("audit --images pictures --encoder none --size 8 --epochs 15 --noise-rate 0.1 --out out".split())
    assert "skipped: dark/broken.png (not an image)" in capsys.readouterr().out
    summary = json.loads(Path("out/summary.json").read_text())
    assert summary["skipped"] == [{"where": "dark/broken.png", "why": "not an image"}]
    assert (summary["samples"], summary["shape"]) == (20, [3, 8, 8])
    names: dict = {}
    (lines,) = re.findall(r"```python\n(.*?)```", Path("out/model.md").read_text(), re.DOTALL)
    exec(lines, names)
    assert list(names["labels"]) == ["dark", "dark"]
    one = features("out", folder / "light" / "03.png")
    assert list(names["classifier"].predict(one)) == ["light"]
