"""Texts as the mean of a vector for each of their tokens: no network, thousands of texts a second.

V tokens of the vocabulary, B texts, F features.
"""

from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np

from coteach.checks import one_line

LONGEST_READ = 20_000  # characters of a text


class TokenVectors:
    """Features (B, F) of length one; zero for a text without a token."""

    def __init__(self, vectors_VF: np.ndarray, tokenizer: Any):
        self.vectors_VF, self.tokenizer = vectors_VF, tokenizer

    def __call__(self, texts: Sequence[str]) -> np.ndarray:
        found = self.tokenizer.encode_batch_fast([t[:LONGEST_READ] for t in texts], add_special_tokens=False)
        x_BF = np.zeros((len(texts), self.vectors_VF.shape[1]), np.float32)
        for row, tokens in zip(x_BF, found, strict=True):
            if tokens.ids:
                row[:] = self.vectors_VF[tokens.ids].mean(0)
        length_B1 = np.linalg.norm(x_BF, axis=1, keepdims=True)
        return x_BF / np.where(length_B1 > 0, length_B1, 1)


def token_vectors(weights: Path, tokenizer: Path) -> TokenVectors:
    """From a file of safetensors with one matrix (V, F), and the tokenizer.json that numbers its rows."""
    from safetensors import SafetensorError
    from safetensors.numpy import load_file

    try:
        from tokenizers import Tokenizer
    except ImportError as error:
        raise ValueError("texts are cut into tokens by tokenizers: pip install 'coteach[text]'.") from error
    try:
        matrices = [array for array in load_file(weights).values() if array.ndim == 2]
    except (OSError, SafetensorError) as error:
        raise ValueError(
            f"{weights} cannot be read ({one_line(error)[:200]}): give a safetensors file."
        ) from error
    try:
        cutter = Tokenizer.from_str(tokenizer.read_text(encoding="utf-8"))
    except Exception as error:  # what it raises has no class of its own
        raise ValueError(
            f"{tokenizer} is no tokenizer ({one_line(error)[:200]}): put it beside {weights}."
        ) from error
    cutter.no_padding()
    cutter.no_truncation()
    if len(matrices) != 1 or matrices[0].shape[0] < cutter.get_vocab_size():
        shapes = [array.shape for array in matrices]
        raise ValueError(
            f"{weights} has matrices of shapes {shapes}, and {tokenizer.name} {cutter.get_vocab_size()} tokens: "
            "give one matrix with a row for each token."
        )
    return TokenVectors(matrices[0].astype(np.float32), cutter)
