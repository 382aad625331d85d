"""A detector in the style of CenterNet: a ResNet-50, three upsampling stages, and one head per quantity.

Every object is a point on a map a quarter of the image's size: `hm` scores per class where centers are, `wh` the
size of the box around each, `reg` the center's place within its cell, `angle` the direction it faces. The weights are
random: the model is here to be captured and rewritten, not to find anything.

Source: Zhou et al., Objects as Points, arXiv:1904.07850; He et al., arXiv:1512.03385.
"""

from __future__ import annotations

import torch
from torch import Tensor, nn

from graphwright.analysis import verify
from graphwright.cli.subject import Call, Effect, Subject
from graphwright.passes import fuse_conv_batch_norm


class Bottleneck(nn.Module):
    """A residual block: narrow, convolve, widen by four, add what came in."""

    def __init__(self, channels: int, width: int, stride: int = 1) -> None:
        super().__init__()
        self.conv1 = nn.Conv2d(channels, width, 1, bias=False)
        self.bn1 = nn.BatchNorm2d(width)
        self.conv2 = nn.Conv2d(width, width, 3, stride, padding=1, bias=False)
        self.bn2 = nn.BatchNorm2d(width)
        self.conv3 = nn.Conv2d(width, 4 * width, 1, bias=False)
        self.bn3 = nn.BatchNorm2d(4 * width)
        self.relu = nn.ReLU(inplace=True)
        self.shortcut: nn.Sequential | None = None
        if stride != 1 or channels != 4 * width:
            self.shortcut = nn.Sequential(
                nn.Conv2d(channels, 4 * width, 1, stride, bias=False), nn.BatchNorm2d(4 * width)
            )

    def forward(self, x: Tensor) -> Tensor:
        """x (batch, channels, h, w) -> (batch, 4 * width, h / stride, w / stride)."""
        out = self.relu(self.bn1(self.conv1(x)))
        out = self.relu(self.bn2(self.conv2(out)))
        out = self.bn3(self.conv3(out))
        out += x if self.shortcut is None else self.shortcut(x)
        return self.relu(out)  # type: ignore[no-any-return]


class Detector(nn.Module):
    """Images to maps of centers, sizes, offsets and angles.

    images (batch, 3, h, w), h and w multiples of 32 -> a dict of maps (batch, values, h / 4, w / 4).

    >>> maps = Detector(classes=5).eval()(torch.zeros(1, 3, 64, 64))
    >>> {name: tuple(values.shape) for name, values in maps.items()}
    {'hm': (1, 5, 16, 16), 'wh': (1, 2, 16, 16), 'reg': (1, 2, 16, 16), 'angle': (1, 1, 16, 16)}
    """

    def __init__(self, classes: int = 15) -> None:
        super().__init__()
        self.stem = nn.Sequential(
            nn.Conv2d(3, 64, 7, stride=2, padding=3, bias=False),
            nn.BatchNorm2d(64),
            nn.ReLU(inplace=True),
            nn.MaxPool2d(3, stride=2, padding=1),
        )
        self.layer1 = _stage(64, 64, blocks=3, stride=1)
        self.layer2 = _stage(256, 128, blocks=4, stride=2)
        self.layer3 = _stage(512, 256, blocks=6, stride=2)
        self.layer4 = _stage(1024, 512, blocks=3, stride=2)
        self.upsample = nn.Sequential(*_doubling(2048), *_doubling(256), *_doubling(256))
        values = {"hm": classes, "wh": 2, "reg": 2, "angle": 1}
        self.heads = nn.ModuleDict({name: _head(count) for name, count in values.items()})

    def forward(self, images: Tensor) -> dict[str, Tensor]:
        """Run backbone, upsampling and every head."""
        x = self.stem(images)
        x = self.layer4(self.layer3(self.layer2(self.layer1(x))))
        x = self.upsample(x)
        return {name: head(x) for name, head in self.heads.items()}


def _stage(channels: int, width: int, blocks: int, stride: int) -> nn.Sequential:
    first = Bottleneck(channels, width, stride)
    return nn.Sequential(first, *(Bottleneck(4 * width, width) for _ in range(blocks - 1)))


def _doubling(channels: int) -> list[nn.Module]:
    """Twice the height and width, 256 channels."""
    conv = nn.ConvTranspose2d(channels, 256, 4, stride=2, padding=1, bias=False)
    return [conv, nn.BatchNorm2d(256), nn.ReLU(inplace=True)]


def _head(values: int) -> nn.Sequential:
    return nn.Sequential(nn.Conv2d(256, 64, 3, padding=1), nn.ReLU(inplace=True), nn.Conv2d(64, values, 1))


def make_detector(seed: int = 0) -> Detector:
    """Make a detector for inference, with statistics in its batch norms as if it had been trained.

    The random state is left as it was.
    """
    with torch.random.fork_rng(devices=()):
        torch.manual_seed(seed)
        model = Detector()
        for module in model.modules():
            if isinstance(module, nn.BatchNorm2d):
                assert module.running_mean is not None and module.running_var is not None
                module.running_mean.normal_(std=0.1)
                module.running_var.uniform_(0.5, 1.5)
                nn.init.uniform_(module.weight, 0.5, 1.0)
                nn.init.normal_(module.bias, std=0.1)
    return model.eval()


def detector_subject() -> Subject:
    """Make the subject of a demonstration on the detector: no weights to load, nothing to install."""
    generator = torch.Generator().manual_seed(0)

    def images(*shape: int) -> Call:
        return (torch.randn(shape, generator=generator),), {}

    calls = {
        "the captured inputs": images(1, 3, 64, 64),
        "another batch size": images(3, 3, 64, 64),
        "other heights and widths": images(1, 3, 96, 128),
    }

    def compare(original: nn.Module, transformed: nn.Module) -> Effect:
        report = verify(original, transformed, list(calls.values()), rtol=1e-3, atol=1e-4)
        left = [type(module).__name__ for module in transformed.modules()]
        lines = (
            f"batch norms left: {left.count('BatchNorm2d')}, ReLUs left: {left.count('ReLU')}",
            f"largest change of a map's value: {report.worst:.2e}",
        )
        return Effect(lines, "the maps change by rounding only", report.ok)

    model = make_detector()
    return Subject(
        name="detector",
        about=("a ResNet-50, three upsampling stages and four heads, random weights",),
        model=model,
        calls=calls,
        part="layer1.0",
        package="folded_detector",
        change="batch norms and ReLUs by the layers before them",
        transform=fuse_conv_batch_norm,
        compare=compare,
    )
