"""A decoder-only transformer in numbers: work and memory per layer (Narayanan et al. 2021, section 2)."""

from dataclasses import asdict, dataclass
from typing import Any

FLOAT_BYTES = 4
# Weight, gradient and both Adam moments, all in single precision.
COPIES = 4
# What one token keeps of one layer until its backward, in numbers per unit of width (attention apart).
KEPT_PER_WIDTH = 17


@dataclass(frozen=True)
class ModelShape:
    """The sizes of the model; sequences of at most `context` tokens are packed up to `microbatch_tokens`."""

    layers: int
    width: int
    heads: int
    context: int
    microbatch_tokens: int
    vocabulary: int = 128

    def to_json(self) -> dict[str, Any]:
        """Return the shape as plain data."""
        return asdict(self)

    def layer_parameters(self, layer: int) -> int:
        """Return how many parameters a layer owns; the first has the embeddings, the last the output."""
        count = 12 * self.width**2 + 13 * self.width
        if layer == 0:
            count += (self.vocabulary + self.context) * self.width
        if layer == self.layers - 1:
            count += self.vocabulary * self.width + 2 * self.width
        return count

    def state_bytes(self, layer: int) -> int:
        """Return the bytes of a layer's weights and optimizer state, without gradients: what moves."""
        return self.layer_parameters(layer) * (COPIES - 1) * FLOAT_BYTES

    def layer_bytes(self, layer: int, in_flight: int) -> int:
        """Return the bytes of a layer's state, gradients, and activations of so many micro-batches."""
        scores = self.microbatch_tokens * self.context * self.heads
        kept = self.microbatch_tokens * self.width * KEPT_PER_WIDTH + 2 * scores
        return self.layer_parameters(layer) * COPIES * FLOAT_BYTES + in_flight * kept * FLOAT_BYTES

    def layer_flops(self, layer: int) -> float:
        """Return the work of one layer's forward for one micro-batch, a multiply-add being two."""
        matrix = 24 * self.width**2 * self.microbatch_tokens
        attention = 4 * self.width * self.microbatch_tokens * self.context
        head = 2 * self.width * self.vocabulary * self.microbatch_tokens if layer == self.layers - 1 else 0
        return float(matrix + attention + head)
