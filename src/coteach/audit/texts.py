"""Texts as vectors of bounded length: TF-IDF of words and pairs of words, then its main directions (LSA).

M texts, V words and pairs, K directions.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from sklearn.decomposition import TruncatedSVD
from sklearn.feature_extraction.text import TfidfVectorizer

from coteach.audit.samples import shown

MOST_WORDS = 30_000
MOST_DIRECTIONS = 128
HOW: dict[str, Any] = {"strip_accents": "unicode", "sublinear_tf": True, "ngram_range": (1, 2)}


@dataclass(frozen=True, eq=False)
class Texts:
    """How a column of texts becomes numbers."""

    name: str
    words: list[str]
    idf_V: np.ndarray
    directions_KV: np.ndarray

    @classmethod
    def learn(cls, name: str, texts: Sequence[str], seed: int) -> "Texts":
        for least in (2, 1):  # a word of one text says nothing about others, but there may be no others
            vectorizer = TfidfVectorizer(min_df=least, max_features=MOST_WORDS, **HOW)
            try:
                tfidf_MV = vectorizer.fit_transform(texts)
            except ValueError:
                continue
            k = min(MOST_DIRECTIONS, min(tfidf_MV.shape) - 1)
            if k >= 1:
                directions_KV = TruncatedSVD(k, random_state=seed).fit(tfidf_MV).components_.astype(np.float32)
                words = vectorizer.get_feature_names_out().tolist()
                return cls(name, words, vectorizer.idf_.astype(np.float32), directions_KV)
        raise ValueError(f"column {shown(name)} has hardly any words: give the column with the texts as --text.")

    def apply(self, texts: Sequence[str]) -> np.ndarray:
        """Vectors (M, K) of length one, or zero for a text of unknown words."""
        vectorizer = TfidfVectorizer(vocabulary={word: v for v, word in enumerate(self.words)}, **HOW)
        vectorizer.idf_ = self.idf_V.astype(np.float64)
        tfidf_MV: Any = vectorizer.transform(texts)
        x_MK = tfidf_MV @ self.directions_KV.T.astype(np.float64)
        length_M1 = np.linalg.norm(x_MK, axis=1, keepdims=True)
        return x_MK / np.where(length_M1 > 0, length_M1, 1)
