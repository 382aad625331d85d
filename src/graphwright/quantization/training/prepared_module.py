"""What a module that is prepared for training can do besides: rounding on and off, norms frozen."""

from __future__ import annotations

from typing import Any

from torch import nn

from graphwright.quantization.training.fake_quantize import FakeQuantize
from graphwright.quantization.training.layers import FakeQuantizedLayer
from graphwright.runtime import GraphModule

_NORMS = nn.modules.batchnorm._BatchNorm


class TrainingModule(GraphModule):
    """A captured module whose values and weights are rounded as integers will be; it trains as any module does.

    Ranges move in training, and stay in evaluation.
    """

    norms_are_frozen = False

    def fake_quantize(self, on: bool = True) -> TrainingModule:
        """Switch rounding on or off, of values and of weights."""
        for module in self.modules():
            if isinstance(module, FakeQuantize | FakeQuantizedLayer):
                module.is_rounding = on
        return self

    def observe(self, on: bool = True) -> TrainingModule:
        """Switch on or off whether ranges move in training."""
        for module in self.modules():
            if isinstance(module, FakeQuantize):
                module.is_observing = on
        return self

    def freeze_batch_norms(self, on: bool = True) -> TrainingModule:
        """Have batch norms use the statistics that they have, and keep them, in training too; or no longer."""
        self.norms_are_frozen = on
        self.train(self.training)
        return self

    def train(self, mode: bool = True) -> Any:
        """Set training or evaluation; norms that are frozen stay in evaluation."""
        super().train(mode)
        if self.norms_are_frozen:
            for module in self.modules():
                if isinstance(module, _NORMS):
                    module.eval()
        return self
