"""Hugging Face: a model, or a pair of them, in transformers' `Trainer`, on labels of which some are wrong.

Needs the extra `hf`. B samples of a mini-batch, M samples, C classes.
"""

import inspect
import warnings
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any
from weakref import WeakKeyDictionary

import numpy as np
import torch
from torch import Tensor, nn
from torch.utils.data import Dataset as TorchDataset

from coteach.data.dicts import INDEX_COLUMN, LABEL_COLUMNS
from coteach.files import write_atomically
from coteach.loops.ledger import Ledger
from coteach.loops.pair import Pair, logits_of, mean_probabilities
from coteach.loops.selection import Selection
from coteach.tensor_files import read_tensors, tensors_as_bytes

try:
    from transformers import TrainerCallback, TrainingArguments, default_data_collator
    from transformers.trainer_callback import TrainerControl, TrainerState
except ImportError as missing:
    raise ImportError("coteach.hf needs transformers: pip install 'coteach[hf]'.") from missing

NO_CHECKPOINT = "is no state of CoteachCallback: copy it from the checkpoint that you go on from, or begin anew."
WATCHING: WeakKeyDictionary = WeakKeyDictionary()  # model → its callback, and the hook
NEW_COLUMNS = ("label_quality", "suggested_label")


class CoteachCallback(TrainerCallback):
    """Adds a method to Hugging Face's `Trainer`: the rule, the schedule of the noise rate, and the ledger.

    Pass it as `callbacks=[callback]`, and its parts as `compute_loss_func=callback.loss`,
    `data_collator=callback.collator(…)` and, for a pair, `preprocess_logits_for_metrics=callback.ensemble`. Make
    the training set with `with_index`. The model is a `coteach.Pair`, or a single model for a method with one
    network.

    It sets `remove_unused_columns=False`, because a Trainer would drop the index. The collator drops the other
    columns that the model does not take. The gradients of a pair are clipped separately for each network; if that
    cannot be done, a warning says so.

    Parameters
    ----------
    method : str
        As for `coteach.Selection`.
    noise_rate : float or "auto"
        The share of wrong labels; "auto" estimates it during the training.
    classes : sequence of str, optional
        Names of the classes in the ledger; by default those in the training set's `ClassLabel`.
    **options
        `ramp` and `warmup` in steps of the optimiser, `loss`, `keep_per_class` and `window`, as for
        `coteach.Selection`.

    Attributes
    ----------
    selection : Selection
        Set when a training begins.
    ledger : Ledger
        Set when a training begins: what the networks thought of each label.

    Examples
    --------
    >>> callback = CoteachCallback("coteaching", noise_rate=0.2)
    >>> collate = callback.collator()
    >>> collate([{"x": [1.0], "label": 0, "index": 7}])["index"]
    tensor([7])
    """

    def __init__(
        self,
        method: str = "coteaching",
        noise_rate: float | str = "auto",
        classes: Sequence[str] | None = None,
        **options: Any,
    ):
        self.settings: dict[str, Any] = dict(options, method=method, noise_rate=noise_rate)
        Selection(**self.settings, steps=1)  # finds what is wrong before anything is trained
        self.classes = None if classes is None else list(classes)
        self.accepted: set[str] = set()  # columns that the model takes; all if it is empty
        self.selection: Selection | None = None
        self.ledger: Ledger | None = None
        self.index: Tensor | None = None
        self.steps_done, self.max_norm = 0, 0.0

    # ---- what the Trainer is given ------------------------------------------------------------------------------

    def loss(self, outputs: Any, labels: Tensor, num_items_in_batch: Tensor | int | None = None) -> Tensor:
        """For `compute_loss_func`: the selection's loss in training, the ensemble's loss in evaluation.

        Parameters
        ----------
        outputs : whatever the model returns, with logits
        labels : tensor of shape (B,)
        num_items_in_batch : int, optional
            The samples of a whole step, if gradients are accumulated or several devices train.

        Examples
        --------
        >>> with torch.no_grad():
        ...     float(CoteachCallback().loss(torch.zeros(2, 5, 4), torch.zeros(5, dtype=torch.int64)).exp())
        4.0
        """
        logits = logits_of(outputs)
        if labels is None:
            raise ValueError("a batch has no labels: let the collator hand them over as labels.")
        if not torch.is_grad_enabled():
            return nn.functional.cross_entropy(self.ensemble(logits, labels), labels)
        if self.selection is None:
            raise ValueError("the Trainer does not know the callback: give callbacks=[callback], too.")
        if self.index is None:
            raise ValueError(
                "the Trainer dropped the index: give train_dataset=coteach.hf.with_index(…) and "
                "data_collator=callback.collator(…), with_index after with_transform."
            )
        self.selection.step = self.steps_done  # the parts of one step are picked from at one rate
        loss = self.selection(logits, labels, self.index)
        self.index = None
        return loss if num_items_in_batch is None else loss * len(labels) / num_items_in_batch

    def ensemble(self, logits: Tensor, labels: Tensor | None = None) -> Tensor:
        """For `preprocess_logits_for_metrics`: the log of the networks' mean probabilities, (B, C) from (2, B, C).

        Parameters
        ----------
        logits : tensor of shape (2, B, C), or (B, C), which is returned as it is
        labels : ignored

        Examples
        --------
        >>> CoteachCallback().ensemble(torch.zeros(2, 5, 4)).shape
        torch.Size([5, 4])
        """
        return logits if logits.dim() == 2 else mean_probabilities(logits.float()).log()

    def collator(self, inner: Callable[[list], dict] | None = None) -> "IndexCollator":
        """For `data_collator`: collates samples as `inner` does, and keeps their numbers.

        Parameters
        ----------
        inner : callable, optional
            A collator such as `DataCollatorWithPadding(tokenizer)`; by default transformers' own.

        Examples
        --------
        >>> batch = CoteachCallback().collator()([{"x": [1.0], "index": 3}, {"x": [2.0], "index": 0}])
        >>> batch["x"].shape, batch["index"].tolist()
        (torch.Size([2, 1]), [3, 0])
        """
        return IndexCollator(inner or default_data_collator, self.accepted)

    def annotate(self, dataset: Any, label: str = "label") -> Any:
        """The training set with two more columns, `label_quality` and `suggested_label`.

        Parameters
        ----------
        dataset : datasets.Dataset
            The data set that was trained on, with its index; it may have been shuffled or filtered since.
        label : str
            The column of the labels; suggested labels get the same names.

        Returns
        -------
        dataset : datasets.Dataset
            `label_quality` is from 0 (wrong, in the eyes of the networks) to 1. A sample that was never seen has
            no suggested label.

        Examples
        --------
        >>> CoteachCallback().annotate(None)
        Traceback (most recent call last):
        ValueError: nothing was trained yet: call trainer.train() first.
        """
        if self.ledger is None:
            raise ValueError("nothing was trained yet: call trainer.train() first.")
        if INDEX_COLUMN not in dataset.column_names:
            raise ValueError("the data set has no column index: give the one that coteach.hf.with_index made.")
        rows = index_of(dataset)
        suggested = [None if c < 0 else int(c) for c in self.ledger.suggestion()[rows]]
        dataset = dataset.remove_columns([name for name in NEW_COLUMNS if name in dataset.column_names])
        dataset = dataset.add_column(NEW_COLUMNS[0], self.ledger.quality()[rows].tolist())
        return dataset.add_column(NEW_COLUMNS[1], suggested, feature=dataset.features.get(label))

    # ---- what the Trainer tells ---------------------------------------------------------------------------------

    def on_init_end(
        self, args: TrainingArguments, state: TrainerState, control: TrainerControl, **kwargs: Any
    ) -> None:
        args.remove_unused_columns = False
        self._watch(kwargs["model"])

    def on_train_begin(
        self, args: TrainingArguments, state: TrainerState, control: TrainerControl, **kwargs: Any
    ) -> None:
        if args.n_gpu > 1:
            raise ValueError(
                f"one process has {args.n_gpu} GPUs, over which logits of two networks cannot be spread: start it "
                "with torchrun, or set CUDA_VISIBLE_DEVICES=0."
            )
        model, dataset = kwargs["model"], getattr(kwargs["train_dataloader"], "dataset", None)
        if not hasattr(dataset, "__len__"):
            raise ValueError("the training set has no length, so its samples have no numbers: give another kind.")
        if args.remove_unused_columns:
            raise ValueError(
                "the Trainer drops the index: give callbacks=[callback] when you make it, or set "
                "remove_unused_columns=False."
            )
        self._watch(model)
        samples = len(dataset)  # pyrefly: ignore[bad-argument-type]
        if INDEX_COLUMN in (getattr(dataset, "column_names", None) or ()):  # it may be a part of what was numbered
            samples = max(samples, 1 + int(index_of(dataset).max()))
        # of several processes' batches the last ones are filled up with samples of the first
        self.ledger = Ledger(samples, self.classes or class_names(dataset), repeats=args.world_size > 1)
        self.selection = Selection(**self.settings, steps=state.max_steps, ledger=self.ledger)
        if state.global_step:
            self._go_on(checkpoint_file(args, state), state.global_step)
        self._take_over_clipping(args, model)

    def on_epoch_begin(
        self, args: TrainingArguments, state: TrainerState, control: TrainerControl, **kwargs: Any
    ) -> None:
        assert self.selection is not None
        assert self.ledger is not None
        self.selection.epoch = self.ledger.epoch = int(state.epoch or 0) + 1  # the Trainer's, where it goes on

    def on_step_begin(
        self, args: TrainingArguments, state: TrainerState, control: TrainerControl, **kwargs: Any
    ) -> None:
        self.steps_done = state.global_step

    def on_pre_optimizer_step(
        self, args: TrainingArguments, state: TrainerState, control: TrainerControl, **kwargs: Any
    ) -> None:
        if self.max_norm:
            kwargs["model"].clip_gradients(self.max_norm)

    def on_step_end(
        self, args: TrainingArguments, state: TrainerState, control: TrainerControl, **kwargs: Any
    ) -> None:
        if self.selection is not None and self.selection.step < state.global_step:
            raise ValueError("the Trainer has a loss of its own: give compute_loss_func=callback.loss.")

    def on_save(
        self, args: TrainingArguments, state: TrainerState, control: TrainerControl, **kwargs: Any
    ) -> None:
        path = checkpoint_file(args, state)
        if self.selection is not None and path.parent.is_dir():
            write_atomically(path, tensors_as_bytes({"step": state.global_step}, self.selection.get_extra_state()))

    def on_train_end(
        self, args: TrainingArguments, state: TrainerState, control: TrainerControl, **kwargs: Any
    ) -> None:
        if self.ledger is not None:
            self.ledger.gather()
        if self.max_norm:
            args.max_grad_norm, self.max_norm = self.max_norm, 0.0

    # ---- how --------------------------------------------------------------------------------------------------

    def _watch(self, model: nn.Module) -> None:
        """Take the index out of what the model is called with, for the loss to find it."""
        if model is None or (model in WATCHING and WATCHING[model][0] is self):
            return
        if model in WATCHING:  # by the callback of a training before, which would take the index away
            WATCHING[model][1].remove()
        WATCHING[model] = self, model.register_forward_pre_hook(self._take_index, with_kwargs=True)
        network = model.networks[0] if isinstance(model, Pair) else model
        self.accepted |= set(inspect.signature(network.forward).parameters) - {"args", "kwargs"}

    def _take_index(self, _: nn.Module, args: tuple, kwargs: dict[str, Any]) -> tuple[tuple, dict[str, Any]]:
        self.index = kwargs.pop(INDEX_COLUMN, None)
        return args, kwargs

    def _take_over_clipping(self, args: TrainingArguments, model: nn.Module) -> None:
        """By the norm of both networks together, each would be scaled as its peer needs it."""
        if not (isinstance(model, Pair) and args.max_grad_norm):
            return
        if args.fp16 or args.deepspeed or args.fsdp:
            warnings.warn(
                "gradients are clipped by the norm of both networks together, since they are scaled or spread: "
                "set max_grad_norm=0 or bf16=True to keep the networks apart.",
                stacklevel=2,
            )
            return
        self.max_norm, args.max_grad_norm = args.max_grad_norm, 0.0

    def _go_on(self, path: Path, step: int) -> None:
        assert self.selection is not None
        facts, tensors = read_tensors(path, NO_CHECKPOINT)
        if facts.get("step") != step:
            raise ValueError(f"{path} is of step {facts.get('step')}, not {step}: put the one of this step there.")
        self.selection.set_extra_state(tensors)


class IndexCollator:
    """Puts samples together, hands their numbers on, and leaves out what the model does not take.

    Parameters
    ----------
    inner : callable
        Puts a list of dicts together.
    accepted : set of str
        Names that the model takes besides labels; empty for all.

    Examples
    --------
    >>> collate = IndexCollator(default_data_collator, {"x"})
    >>> sorted(collate([{"x": [1.0], "text": "so", "label": 1, "index": 0}]))
    ['index', 'labels', 'x']
    """

    def __init__(self, inner: Callable[[list], dict], accepted: set[str]):
        self.inner, self.accepted = inner, accepted

    def __call__(self, samples: list) -> Any:
        index = [
            sample[INDEX_COLUMN] for sample in samples if isinstance(sample, Mapping) and INDEX_COLUMN in sample
        ]
        taken = self.accepted.union(LABEL_COLUMNS) if self.accepted else None
        batch = self.inner(
            [
                {k: v for k, v in sample.items() if k != INDEX_COLUMN and (taken is None or k in taken)}
                for sample in samples
            ]
        )
        if index:
            batch[INDEX_COLUMN] = torch.as_tensor(index)
        return batch


def with_index(dataset: Any) -> Any:
    """Add each sample's number to a data set, as the column or entry `index`.

    Parameters
    ----------
    dataset : datasets.Dataset, or a torch data set of dicts

    Examples
    --------
    >>> with_index([{"x": 1.0}, {"x": 2.0}])[1]
    {'x': 2.0, 'index': 1}
    """
    if not hasattr(dataset, "__len__"):
        raise ValueError("the data set has no length, so its samples have no numbers: give another kind.")
    if not hasattr(dataset, "add_column"):
        return Numbered(dataset)
    if INDEX_COLUMN in dataset.column_names:
        raise ValueError("the data set has a column index already: rename it, or leave it out.")
    dataset = dataset.add_column(INDEX_COLUMN, list(range(len(dataset))))
    transform = dataset.format["format_kwargs"].get("transform")
    return dataset if transform is None else dataset.with_transform(KeepsIndex(transform))


class KeepsIndex:
    """A transform that hands the numbers on, which most would leave out.

    >>> KeepsIndex(lambda rows: {"x": [2 * x for x in rows["x"]]})({"x": [1.0], "index": [7]})
    {'x': [2.0], 'index': [7]}
    """

    def __init__(self, transform: Callable[[dict], dict]):
        self.transform = transform

    def __call__(self, rows: dict[str, list]) -> dict[str, Any]:
        index = rows[INDEX_COLUMN]
        return dict(self.transform(rows)) | {INDEX_COLUMN: index}


def index_of(dataset: Any) -> np.ndarray:
    """The column index, whatever the format of the others."""
    return np.asarray(dataset.with_format("numpy", columns=[INDEX_COLUMN])[INDEX_COLUMN][:])


class Numbered(TorchDataset):
    """A torch data set of dicts, each with its number.

    >>> len(Numbered([{"x": 1.0}]))
    1
    """

    def __init__(self, dataset: Any):
        self.dataset = dataset

    def __len__(self) -> int:
        return len(self.dataset)

    def __getitem__(self, index: int) -> dict[str, Any]:
        return dict(self.dataset[index]) | {INDEX_COLUMN: index}


def class_names(dataset: Any) -> list[str] | None:
    """Those of the `ClassLabel` among a data set's columns, if there is one.

    >>> class_names([{"x": 1.0}])
    """
    features = getattr(dataset, "features", None) or {}
    for column in LABEL_COLUMNS:
        if hasattr(features.get(column), "names"):
            return list(features[column].names)
    return None


def checkpoint_file(args: TrainingArguments, state: TrainerState) -> Path:
    """Beside the Trainer's own files; each process has one.

    >>> checkpoint_file(TrainingArguments("out", use_cpu=True), TrainerState(global_step=5)).as_posix()
    'out/checkpoint-5/coteach-0.safetensors'
    """
    return Path(
        args.output_dir or ".", f"checkpoint-{state.global_step}", f"coteach-{args.process_index}.safetensors"
    )
