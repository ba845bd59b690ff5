"""The multilayer perceptron of the paper's MNIST experiments."""

from torch import Tensor, nn


class MLP(nn.Module):
    """Dense layers with ReLU between them; `hidden=(256, 256)` is the 3-layer one of the introduction.

    Parameters
    ----------
    n_inputs : int
        Numbers of a sample, whatever its shape.
    n_classes : int
        Number of logits.
    hidden : tuple of int
        Widths of the hidden layers; () makes a linear model.

    Examples
    --------
    >>> MLP(28 * 28, 10)(torch.zeros(5, 1, 28, 28)).shape
    torch.Size([5, 10])
    """

    def __init__(self, n_inputs: int, n_classes: int, hidden: tuple[int, ...] = (256,)) -> None:
        super().__init__()
        widths = (n_inputs, *hidden)
        self.hidden = nn.Sequential()
        for n_in, n_out in zip(widths[:-1], widths[1:], strict=True):
            self.hidden.extend([nn.Linear(n_in, n_out), nn.ReLU()])
        self.output = nn.Linear(widths[-1], n_classes)

    def forward(self, x: Tensor) -> Tensor:
        """Logits of a batch of samples of any shape, flattened here."""
        return self.output(self.hidden(x.flatten(1)))
