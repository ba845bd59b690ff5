"""Open-set noise: images of none of the classes. M samples."""

from typing import Any

import numpy as np

from coteach.checks import check_labels, check_rate, check_same_length, random_state


def replace_images(
    images: np.ndarray, outside_images: np.ndarray, y: Any, rate: float = 0.4, seed: int = 0
) -> tuple[np.ndarray, np.ndarray]:
    """Open-set noise: put outside images in place of the same share of images in each class; labels stay.

    Parameters
    ----------
    images : array of shape (M, ...)
    outside_images : array of shape (K, ...) and the same type
        Of none of the C classes; none is used twice.
    y : int array of shape (M,)
    rate : float
        Share replaced in each class, rounded to whole images.
    seed : int
        Of the noise, from 0 to 2³²-1.

    Returns
    -------
    new_images : array of shape (M, ...), a copy
    replaced : bool array of shape (M,)

    Examples
    --------
    >>> images, outside = np.zeros((10, 8, 8)), np.ones((20, 8, 8))
    >>> new, replaced = replace_images(images, outside, [0, 1] * 5, rate=0.4)
    >>> int(replaced.sum()), bool((new[replaced] == 1).all())
    (4, True)
    """
    images, outside_images = np.asarray(images), np.asarray(outside_images)
    y, rate, random = check_labels(y), check_rate(rate), random_state(seed)
    if images.ndim == 0 or outside_images.ndim == 0:
        raise ValueError("images must be arrays with one image per row: stack them first.")
    check_same_length(images, y)
    ours, theirs = (f"{i.dtype} of shape {i.shape[1:]}" for i in (images, outside_images))
    if ours != theirs:
        raise ValueError(f"the images are {ours}, the outside images {theirs}: convert one to the other.")
    replaced = np.zeros(len(y), dtype=bool)
    for label in np.unique(y):
        members = np.flatnonzero(y == label)
        replaced[random.permutation(members)[: round(rate * len(members))]] = True
    n_replaced = int(replaced.sum())
    if n_replaced > len(outside_images):
        raise ValueError(
            f"{n_replaced} outside images are needed but there are {len(outside_images)}: "
            "give more of them, or lower the rate."
        )
    new_images = images.copy()
    new_images[replaced] = outside_images[random.permutation(len(outside_images))[:n_replaced]]
    return new_images, replaced
