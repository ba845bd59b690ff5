"""Small data of one's own, for the smoke test: arrays, a folder of images, a table, texts."""

from pathlib import Path

import numpy as np
import pyarrow
import pyarrow.parquet
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
kinds = [f"class {label}" for label in y]
pyarrow.parquet.write_table(pyarrow.table([*x.T, kinds], names=[*"abcde", "kind"]), "rows.parquet")
texts = [f"{['a cat on a mat', 'shares fell again'][label]} {i},{kinds[i]}" for i, label in enumerate(y)]
Path("texts.csv").write_text("\n".join(["words,kind", *texts]) + "\n", encoding="utf-8")
