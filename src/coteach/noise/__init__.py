"""Wrong labels: drawn from a noise seed by matrices, flips and open-set images, or as people gave them.

Quick to import: nothing here needs torch.
"""

from coteach.noise.flips import corrupt
from coteach.noise.given import of_labels
from coteach.noise.matrices import check_matrix, pair, superclass_asymmetric, symmetric
from coteach.noise.openset import replace_images
from coteach.noise.record import FORMAT, KINDS, TENSORS, Noise

__all__ = [
    "FORMAT",
    "KINDS",
    "TENSORS",
    "Noise",
    "check_matrix",
    "corrupt",
    "of_labels",
    "pair",
    "replace_images",
    "superclass_asymmetric",
    "symmetric",
]
