"""The network of the paper's NEWS experiments: frozen word vectors, averaged, under three dense layers.

Shapes: B documents, L tokens in each, V words, D numbers a word, C classes.
"""

from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor, nn

PIECES = 16


def pool(tokens_BL: Tensor, vectors_VD: Tensor, pooling: str = "words") -> Tensor:
    """Average a document's word vectors to 16·D numbers; nothing here is learnt.

    ``"words"`` averages over 16 pieces of the document, as the paper writes; ``"flat"`` averages neighbours
    among the flattened L·D numbers, as the authors' code does, mixing a word's coordinates (fidelity row 10).
    """
    words_BLD = F.embedding(tokens_BL, vectors_VD)
    if pooling == "flat":
        return F.adaptive_avg_pool1d(words_BLD.flatten(1), PIECES * vectors_VD.shape[1])
    pieces_BDP = F.adaptive_avg_pool1d(words_BLD.transpose(1, 2), PIECES)
    return pieces_BDP.transpose(1, 2).flatten(1)


class NewsNet(nn.Module):
    """Average to 16·D, then dense layers to 4·D and D, each with batch norm and Softsign, then logits.

    Parameters
    ----------
    vectors : array of shape (V, D)
        One row a word, never trained, and never saved with the weights.
    n_classes : int
        Number of logits.
    pooling : {"words", "flat"}
        See `pool`.

    Examples
    --------
    >>> documents = torch.tensor([[1, 2, 0, 0], [2, 2, 1, 0]])  # two, of four tokens; 0 is padding
    >>> NewsNet(torch.zeros(3, 5), 7)(documents).shape
    torch.Size([2, 7])
    """

    # Equal in every copy and never changed, so that copies run together can share one table.
    shared_buffers = ("vectors",)
    vectors: Tensor

    def __init__(self, vectors: Any, n_classes: int, pooling: str = "words") -> None:
        super().__init__()
        if pooling not in ("words", "flat"):
            raise ValueError(f"there is no pooling {pooling!r}: choose 'words' or 'flat'.")
        table_VD = torch.as_tensor(vectors, dtype=torch.get_default_dtype())
        if table_VD.ndim != 2:
            raise ValueError(
                f"word vectors must be a table, one row a word, but have shape {tuple(table_VD.shape)}."
            )
        self.register_buffer("vectors", table_VD, persistent=False)
        self.pooling = pooling
        d = table_VD.shape[1]
        self.dense = nn.Sequential(
            nn.Linear(PIECES * d, 4 * d), nn.BatchNorm1d(4 * d), nn.Softsign(),
            nn.Linear(4 * d, d), nn.BatchNorm1d(d), nn.Softsign(),
            nn.Linear(d, n_classes),
        )  # fmt: skip

    def forward(self, x: Tensor) -> Tensor:
        """Logits of integer tokens (B, L), or of documents that `pool` has averaged beforehand (B, 16·D)."""
        if not x.is_floating_point():
            x = pool(x, self.vectors, self.pooling)
        return self.dense(x)
