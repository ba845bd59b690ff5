"""Small data of one's own, for the smoke test: arrays, a folder of images, a table."""

from pathlib import Path

import numpy as np
from PIL import Image

random = np.random.default_rng(0)
y = np.arange(60) % 2
x = random.normal(size=(60, 5)) + 3 * y[:, None]
np.savez("arrays.npz", x=x, y=y)
for i, label in enumerate(y):
    folder = Path("photos", ["dark", "light"][label])
    folder.mkdir(parents=True, exist_ok=True)
    pixels = random.integers(0, 120, (20, 20, 3)) + 120 * label
    Image.fromarray(pixels.astype(np.uint8)).save(folder / f"{i}.png")
lines = [",".join([*(f"{v:.3f}" for v in row), f"class {label}"]) for row, label in zip(x, y, strict=True)]
Path("rows.csv").write_text("\n".join(["a,b,c,d,e,kind", *lines]) + "\n", encoding="utf-8")
