"""What can go wrong in an epoch, in words. No torch: a report tells it, too."""

EVENTS = {
    "no_disagreement": "batches on which the networks agreed throughout, so that there was nothing to pick",
    "nothing_kept": "batches whose share to keep came to no sample, so that all candidates were taken",
    "non_finite_loss": "batches with a loss or gradient that is not finite, which a network sat out: lower --lr",
    "one_class": "networks that predict one class for the whole test set: if it lasts, give a longer --warmup",
    "out_of_memory": "times that the runs did not fit into memory together and fewer were trained at a time",
    "consensus": "epochs in which the networks agreed throughout, so that two are no better than one",
}
