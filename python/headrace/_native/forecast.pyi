# SPDX-License-Identifier: Apache-2.0
# Made by tools/stub.py from the built module.
# mypy: disable-error-code="type-arg,valid-type"

from collections.abc import Sequence
from typing import Annotated

import numpy
from numpy.typing import NDArray

class NetworkShape:
    """
    What decides the parameters' shapes; columns of an input row: lags, embeddings, others.
    """

    def __init__(
        self,
        lags: int,
        other_inputs: int,
        embeddings: Sequence[tuple[int, int]] = ...,
        hidden: int = ...,
        layers: int = ...,
        distribution: str = ...,
    ) -> None: ...
    @property
    def inputs(self) -> int:
        """Columns of an input row."""

def parameter_tensors(shape: NetworkShape) -> list[tuple[str, list[int], int]]:
    """
    Name (torch's), shape and offset of each tensor in the parameter vector.
    """

def parameter_total(shape: NetworkShape) -> int:
    """Length of the parameter vector."""

def initial_parameters(shape: NetworkShape, seed: int) -> NDArray[numpy.float32]:
    """Draw a parameter vector."""

def instruction_sets() -> list[str]:
    """Those of this machine, best first."""

def instruction_set() -> str:
    """The one in use."""

def set_instruction_set(name: str) -> None:
    """Use another one from now on."""

class TrainingStep:
    """Loss and gradient of one batch."""

    def __init__(self, shape: NetworkShape, batch: int, steps: int) -> None: ...
    def fill(
        self,
        inputs: Annotated[
            NDArray[numpy.float32],
            dict(shape=(None, None, None), order="C", device="cpu", writable=False),
        ],
        target: Annotated[
            NDArray[numpy.float32],
            dict(shape=(None, None), order="C", device="cpu", writable=False),
        ],
        observed: Annotated[
            NDArray[numpy.float32],
            dict(shape=(None, None), order="C", device="cpu", writable=False),
        ],
        scales: Annotated[
            NDArray[numpy.float32], dict(shape=(None,), order="C", device="cpu", writable=False)
        ],
        categories: Annotated[
            NDArray[numpy.int64], dict(shape=(None, None), order="C", device="cpu", writable=False)
        ],
    ) -> None:
        """
        Copy inputs [steps, batch, inputs], target and observed [steps, batch], scales [batch] and categories [batch, embeddings] (int64).
        """

    def loss_and_gradient(
        self,
        parameters: Annotated[
            NDArray[numpy.float32], dict(shape=(None,), order="C", device="cpu", writable=False)
        ],
        dropout: float = ...,
        seed: int = ...,
    ) -> tuple[float, float, NDArray[numpy.float32]]:
        """Loss (mean over all cells), loss over observed cells, gradient."""

    def loss(
        self,
        parameters: Annotated[
            NDArray[numpy.float32], dict(shape=(None,), order="C", device="cpu", writable=False)
        ],
    ) -> tuple[float, float]:
        """Both losses, without dropout."""

    def distributions(self) -> NDArray[numpy.float32]:
        """
        Parameters of the last run's distributions, [steps, batch, parameters].
        """

class Adam:
    """torch.optim.Adam behind torch's clip_grad_norm_."""

    def __init__(
        self,
        parameters: int,
        beta1: float = ...,
        beta2: float = ...,
        epsilon: float = ...,
        weight_decay: float = ...,
        clip_norm: float = ...,
    ) -> None: ...
    def step(
        self,
        parameters: Annotated[NDArray[numpy.float32], dict(shape=(None,), order="C", device="cpu")],
        gradient: Annotated[NDArray[numpy.float32], dict(shape=(None,), order="C", device="cpu")],
        learning_rate: float,
    ) -> float:
        """Change both in place; the gradient's norm before clipping."""

class Decoder:
    """The network one step at a time, without gradients."""

    def __init__(
        self,
        shape: NetworkShape,
        rows_max: int,
        parameters: Annotated[
            NDArray[numpy.float32], dict(shape=(None,), order="C", device="cpu", writable=False)
        ],
    ) -> None: ...
    def reset(self, rows: int) -> None:
        """Start `rows` sequences at zero."""

    def set_categories(
        self,
        categories: Annotated[
            NDArray[numpy.int64], dict(shape=(None, None), order="C", device="cpu", writable=False)
        ],
    ) -> None:
        """[rows, embeddings], int64."""

    def step(
        self,
        inputs: Annotated[
            NDArray[numpy.float32],
            dict(shape=(None, None), order="C", device="cpu", writable=False),
        ],
    ) -> NDArray[numpy.float32]:
        """
        Advance all rows by inputs [rows, inputs]; distributions' parameters [rows, ...].
        """

    def repeat(self, copies: int) -> None:
        """Make each row `copies` rows."""

    @property
    def rows(self) -> int:
        """Rows now."""
