"""What networks thought of every label, noted from any loop. N networks, M samples, B of a batch, C classes."""

from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any, Self

import numpy as np
import torch
import torch.distributed as dist
from torch import Tensor

from coteach.checks import is_whole
from coteach.engine.records import opinions, quality_of, suggestion_of
from coteach.files import refuse_place, write_atomically
from coteach.labels.ledger import Suspects, suspects
from coteach.rules import check_batch
from coteach.tensor_files import read_tensors, tensors_as_bytes

if TYPE_CHECKING:
    import pandas as pd

NOT_A_LEDGER = "was not written by Ledger.save: give the path of one."
SUMS = ("seen_NM", "given_NM", "margin_NM", "other_NM", "picks_NM")


class Ledger:
    """Remembers what networks thought of every training label, and says which labels are suspect.

    Networks learn right labels first, and learn wrong ones by heart later. A mean over the epochs still holds
    their early doubts. The numbers are the same as those of `RobustClassifier`.

    Parameters
    ----------
    samples : int
        M, the number of training samples.
    classes : sequence of C names, optional
        Names that `suspects` and `to_frame` use for the classes; by default their numbers.
    repeats : bool
        Allow a sample to come again in an epoch, as when samplers fill up the last batch. It is noted once.

    Examples
    --------
    >>> ledger = coteach.Ledger(3)
    >>> logits = np.array([[3.0, 0.0], [0.0, 3.0], [3.0, 0.0]])  # of one network, for samples 0 to 2
    >>> ledger.note([0, 1, 2], logits, [0, 1, 1])
    >>> ledger.quality().round(2).tolist(), ledger.suspects(share=1 / 3).index.tolist()
    ([0.95, 0.95, 0.05], [2])
    """

    def __init__(self, samples: int, classes: Sequence[Any] | None = None, repeats: bool = False):
        if not (is_whole(samples) and samples >= 1):
            raise ValueError(f"samples is {samples!r}: give the number of training samples, such as len(dataset).")
        self.samples, self.repeats = int(samples), repeats
        self.classes = None if classes is None else np.asarray(classes, dtype=object).tolist()
        self.epoch = 1  #: counted from 1; `next_epoch` moves it
        self.labels_M = torch.full((self.samples,), -1)
        self.noted_M = torch.zeros(self.samples, dtype=torch.int64)  # the last epoch in which each was noted
        self.seen_NM = self.given_NM = self.margin_NM = self.other_NM = self.picks_NM = torch.empty(0, 0)

    # ---- while a training runs ----------------------------------------------------------------------------------

    @torch.no_grad()
    def note(self, index: Any, logits: Any, labels: Any, picked: Any = None) -> None:
        """Add what the networks think of a mini-batch, before they learn it.

        Parameters
        ----------
        index : int array of shape (B,)
            The samples' numbers, from 0 to M - 1. Each comes once an epoch; `next_epoch` begins another.
        logits : array of shape (N, B, C), or (B, C) of one network
            NumPy, torch, JAX, or whatever else NumPy can read.
        labels : int array of shape (B,)
            As given, some of them wrong.
        picked : bool array of shape (N, B), optional
            Which of them each network learns from.

        Examples
        --------
        >>> ledger = coteach.Ledger(samples=2)
        >>> for epoch in range(3):
        ...     ledger.note([0, 1], np.array([[1.0, 0.0], [1.0, 0.0]]), [0, 1])
        ...     ledger.next_epoch()
        >>> ledger.quality().round(2).tolist()
        [0.73, 0.27]
        """
        logits_NBC = in_full_precision(as_tensor(logits))
        logits_NBC = logits_NBC[None] if logits_NBC.dim() == 2 else logits_NBC
        labels_B, index_B = (as_integers(some, logits_NBC.device) for some in (labels, index))
        check_batch(logits_NBC, labels_B)
        if self.classes is not None and logits_NBC.shape[-1] > len(self.classes):
            raise ValueError(
                f"logits of {logits_NBC.shape[-1]} classes, but {len(self.classes)} names: give each class one."
            )
        if not self.seen_NM.numel():
            self._begin(logits_NBC)
        if len(logits_NBC) != len(self.seen_NM):
            raise ValueError(f"logits of {len(logits_NBC)} networks, but before of {len(self.seen_NM)}: note all.")
        self._move(logits_NBC.device)
        first_B = self._check_index(index_B, len(labels_B))
        if self.repeats:
            logits_NBC, labels_B, index_B = logits_NBC[:, first_B], labels_B[first_B], index_B[first_B]
            picked = None if picked is None else as_tensor(picked, first_B.device)[:, first_B]
        p_NBC = logits_NBC.softmax(-1)
        given_NB, margin_NB, other_NB = (some.to(self.given_NM.dtype) for some in opinions(p_NBC, labels_B))
        finite_NB = given_NB.isfinite()
        index_NB = index_B.expand_as(given_NB)
        self.seen_NM.scatter_add_(1, index_NB, finite_NB.int())
        self.given_NM.scatter_add_(1, index_NB, torch.where(finite_NB, given_NB, 0))
        self.margin_NM.scatter_add_(1, index_NB, torch.where(finite_NB, margin_NB, 0))
        if picked is not None:
            learnt_NB = as_tensor(picked, p_NBC.device).expand_as(finite_NB) & finite_NB
            self.picks_NM.scatter_add_(1, index_NB, learnt_NB.int())
        self.other_NM.scatter_(1, index_NB, other_NB.int())
        self.labels_M[index_B], self.noted_M[index_B] = labels_B, self.epoch

    def next_epoch(self) -> None:
        """Begin another epoch, in which every sample may be noted again.

        >>> ledger = coteach.Ledger(2)
        >>> ledger.next_epoch()
        >>> ledger.epoch
        2
        """
        self.epoch += 1

    def gather(self) -> None:
        """Add up what all processes of torch.distributed noted. Call it once, after the training.

        >>> coteach.Ledger(2).gather()  # in one process there is nothing to do
        """
        if not (dist.is_available() and dist.is_initialized() and dist.get_world_size() > 1):
            return
        last_M = self.noted_M.clone()
        for total in (self.labels_M, self.noted_M):
            dist.all_reduce(total, dist.ReduceOp.MAX)
        for total in (self.seen_NM, self.given_NM, self.margin_NM, self.picks_NM):
            dist.all_reduce(total)
        self.other_NM.masked_fill_(last_M != self.noted_M, -1)  # the last to see a sample says what else it may be
        dist.all_reduce(self.other_NM, dist.ReduceOp.MAX)

    def _begin(self, logits_NBC: Tensor) -> None:
        """Make room in the networks' precision."""
        shape = (len(logits_NBC), self.samples)
        self.given_NM, self.margin_NM = (torch.zeros(shape, dtype=logits_NBC.dtype) for _ in "ab")
        self.seen_NM, self.other_NM, self.picks_NM = (torch.zeros(shape, dtype=torch.int32) for _ in "abc")

    def _move(self, device: torch.device) -> None:
        """To where the networks are: what a checkpoint brought back may lie elsewhere."""
        if self.noted_M.device != device or self.seen_NM.device != device:
            self.restore({name: t.to(device) for name, t in self.state().items()})

    def _check_index(self, index_B: Tensor, size: int) -> Tensor:
        """first_B: which samples come for the first time in this epoch; without repeats it must be all."""
        if index_B.is_floating_point():
            raise ValueError(f"index is of {index_B.dtype}: give whole numbers, those of the samples.")
        if index_B.shape != (size,):
            raise ValueError(
                f"index has shape {tuple(index_B.shape)} for {size} labels: give the number of each sample."
            )
        outside_B = (index_B < 0) | (index_B >= self.samples)
        if outside_B.any():
            raise ValueError(
                f"index {int(index_B[outside_B][0])} is none of the {self.samples} samples: number them from 0, "
                "and make the ledger for all of them."
            )
        sorted_B, order_B = index_B.sort(stable=True)
        first_B = self.noted_M[index_B] != self.epoch
        first_B[order_B[1:]] &= sorted_B.diff() != 0
        if not (self.repeats or first_B.all()):
            raise ValueError(
                f"sample {int(index_B[~first_B][0])} comes twice in epoch {self.epoch}: give its number in the "
                "data set, not in the batch, and call next_epoch() after each epoch."
            )
        return first_B

    # ---- what it has found --------------------------------------------------------------------------------------

    def quality(self) -> np.ndarray:
        """How far each label can be trusted, as in `RobustClassifier.label_quality_`.

        Returns
        -------
        quality : float64 array of shape (M,)
            From 0 (wrong, in the eyes of the networks) to 1; ½ for samples that were never noted.

        Examples
        --------
        >>> coteach.Ledger(2).quality().tolist()
        [0.5, 0.5]
        """
        if not self.seen_NM.numel():
            return np.full(self.samples, 0.5)
        return quality_of(self.margin_NM.sum(0), self.seen_NM.sum(0))

    def suggestion(self) -> np.ndarray:
        """The likeliest other class for each label.

        Returns
        -------
        numbers : int64 array of shape (M,)
            -1 for samples that were never noted.

        Examples
        --------
        >>> ledger = coteach.Ledger(1)
        >>> ledger.note([0], np.array([[0.0, 1.0, 2.0]]), [2])
        >>> ledger.suggestion().tolist()
        [1]
        """
        if not self.seen_NM.numel():
            return np.full(self.samples, -1)
        found = suggestion_of(self.given_NM / self.seen_NM.clamp(min=1), self.other_NM)
        return np.where(self.noted_M.cpu().numpy() > 0, found, -1)

    def suspects(self, share: float) -> Suspects:
        """The samples with the least trusted labels, the worst first.

        Parameters
        ----------
        share : float
            The share of the noted samples to list, such as the noise rate.

        Returns
        -------
        suspects : Suspects
            Four arrays of the same length: `index`, `given`, `suggested` and `quality`.

        Examples
        --------
        >>> ledger = coteach.Ledger(2, classes=["cat", "dog"])
        >>> ledger.note([0, 1], np.array([[2.0, 0.0], [2.0, 0.0]]), [0, 1])
        >>> worst = ledger.suspects(0.5)
        >>> worst.index.tolist(), worst.given.tolist(), worst.suggested.tolist()
        ([1], ['dog'], ['cat'])
        """
        if not 0 <= share <= 1:
            raise ValueError(f"share is {share!r}: give a share of the samples from 0 to 1.")
        noted = np.flatnonzero(self.noted_M.cpu().numpy())
        given_M, suggested_M = self._named(self.labels_M.cpu().numpy()), self._named(self.suggestion())
        found = suspects(given_M[noted], self.quality()[noted], suggested_M[noted], float(share))
        return Suspects(noted[found.index], found.given, found.suggested, found.quality)

    def to_frame(self) -> "pd.DataFrame":
        """A pandas table with a row for each sample: given, suggested, quality, seen and picked.

        `seen` is how often a network's opinion was noted; `picked` is the share of those times in which the
        network learnt from the sample.

        >>> ledger = coteach.Ledger(1)
        >>> ledger.note([0], np.array([[0.0, 2.0]]), [0], picked=[[True]])
        >>> ledger.to_frame().columns.tolist()
        ['given', 'suggested', 'quality', 'seen', 'picked']
        """
        try:
            import pandas as pd
        except ImportError as error:
            raise ValueError("to_frame needs pandas: pip install pandas.") from error
        seen_M = self.seen_NM.sum(0).cpu().numpy() if self.seen_NM.numel() else np.zeros(self.samples, dtype=int)
        picks_M = self.picks_NM.sum(0).cpu().numpy() if self.seen_NM.numel() else seen_M
        columns = {
            "given": self._named(self.labels_M.cpu().numpy()),
            "suggested": self._named(self.suggestion()),
            "quality": self.quality(),
            "seen": seen_M,
            "picked": picks_M / np.maximum(seen_M, 1),
        }
        return pd.DataFrame(columns, index=pd.RangeIndex(self.samples, name="sample"))

    def _named(self, numbers_M: np.ndarray) -> np.ndarray:
        if self.classes is None:
            return numbers_M
        return np.array([*self.classes, None], dtype=object)[numbers_M]  # -1 is the last: no class

    # ---- files --------------------------------------------------------------------------------------------------

    def state(self) -> dict[str, Tensor]:
        """All sums as tensors, for a checkpoint; `restore` takes them back.

        >>> sorted(coteach.Ledger(2).state())[:3]
        ['epoch', 'given_NM', 'labels_M']
        """
        names = (*SUMS, "labels_M", "noted_M")
        return {name: getattr(self, name) for name in names} | {"epoch": torch.tensor(self.epoch)}

    def restore(self, state: dict[str, Tensor]) -> None:
        """Go on from what `state` returned.

        >>> ledger = coteach.Ledger(2)
        >>> ledger.restore(coteach.Ledger(2).state())
        """
        if "labels_M" not in state:
            raise ValueError("the state holds no ledger: take that of a training with one, or go on without.")
        if len(state["labels_M"]) != self.samples:
            raise ValueError(f"the state has {len(state['labels_M'])} samples, not {self.samples}: take another.")
        sums = {name: state[name].clone() for name in (*SUMS, "labels_M", "noted_M")}
        if any(value.numel() and value.shape[-1] != self.samples for value in sums.values()):
            raise ValueError("the state is of ledgers of several sizes: take that of one.")
        self.__dict__.update(sums, epoch=int(state["epoch"]))  # all at once

    def save(self, path: str | Path) -> None:
        """Write one safetensors file, without pickle.

        >>> import tempfile
        >>> with tempfile.TemporaryDirectory() as folder:
        ...     coteach.Ledger(2).save(f"{folder}/ledger.safetensors")
        ...     coteach.Ledger.load(f"{folder}/ledger.safetensors").samples
        2
        """
        refuse_place(Path(path), "ledger.safetensors")
        facts = {"kind": "ledger", "samples": self.samples, "classes": self.classes}
        try:
            write_atomically(Path(path), tensors_as_bytes(facts, self.state()))
        except TypeError as error:
            raise ValueError(f"classes cannot be written as JSON ({error}): give plain names.") from error

    @classmethod
    def load(cls, path: str | Path) -> Self:
        """Load what `save` wrote.

        >>> import tempfile
        >>> with tempfile.TemporaryDirectory() as folder:
        ...     coteach.Ledger(2, ["cat", "dog"]).save(f"{folder}/ledger.safetensors")
        ...     coteach.Ledger.load(f"{folder}/ledger.safetensors").classes
        ['cat', 'dog']
        """
        facts, tensors = read_tensors(Path(path), NOT_A_LEDGER)
        try:
            ledger = cls(facts["samples"], facts["classes"])
            ledger.restore(tensors)
        except (KeyError, TypeError, ValueError) as error:
            raise ValueError(f"{path} {NOT_A_LEDGER}") from error
        return ledger


def as_tensor(values: Any, device: torch.device | None = None) -> Tensor:
    """Arrays of any framework."""
    tensor = values.detach() if isinstance(values, Tensor) else torch.as_tensor(np.array(values))
    return tensor if device is None else tensor.to(device)


def as_integers(values: Any, device: torch.device) -> Tensor:
    """Labels, or numbers of samples, as int64; fractions stay, for a check to refuse."""
    try:
        tensor = as_tensor(values, device)
    except TypeError as error:
        raise ValueError(
            f"labels or index of {type(values).__name__}: give whole numbers, one for each sample."
        ) from error
    return tensor if tensor.is_floating_point() else tensor.long()


def in_full_precision(logits: Tensor) -> Tensor:
    """Half of it is too little to compare losses by."""
    return logits if logits.dtype in (torch.float32, torch.float64) else logits.float()
