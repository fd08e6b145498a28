"""Layers of published networks: the convolutions that figures are given for."""

from __future__ import annotations

from dataclasses import replace
from typing import Final

from tilekit.bench.conv2d import ConvWorkload
from tilekit.bench.conv2d_gradients import GradientWorkload

_RESNET50: Final = (
    "32x224x224x3 64x7x7 s2 p3",
    *("32x56x56x64 64x1x1", "32x56x56x64 64x3x3 p1", "32x56x56x64 256x1x1", "32x56x56x256 64x1x1"),
    *("32x56x56x256 128x1x1", "32x56x56x128 128x3x3 s2 p1", "32x56x56x256 512x1x1 s2"),
    *("32x28x28x128 512x1x1", "32x28x28x512 128x1x1", "32x28x28x128 128x3x3 p1"),
    *("32x28x28x512 256x1x1", "32x28x28x256 256x3x3 s2 p1", "32x28x28x512 1024x1x1 s2"),
    *("32x14x14x256 1024x1x1", "32x14x14x1024 256x1x1", "32x14x14x256 256x3x3 p1"),
    *("32x14x14x1024 512x1x1", "32x14x14x512 512x3x3 s2 p1", "32x14x14x1024 2048x1x1 s2"),
    *("32x7x7x512 2048x1x1", "32x7x7x2048 512x1x1", "32x7x7x512 512x3x3 p1"),
)
"""Every layer, of 32 images of 224 by 224: the strides are those of the 3x3 filters, as torchvision has them."""

_UNET: Final = (
    "2x64x64x4 320x3x3 p1",
    *("2x64x64x320 320x3x3 p1", "2x64x64x320 320x3x3 s2 p1", "2x64x64x960 320x3x3 p1", "2x64x64x640 320x3x3 p1"),
    *("2x32x32x320 640x3x3 p1", "2x32x32x640 640x3x3 p1", "2x32x32x640 640x3x3 s2 p1", "2x32x32x1920 640x3x3 p1"),
    *("2x16x16x640 1280x3x3 p1", "2x16x16x1280 1280x3x3 p1", "2x16x16x2560 1280x3x3 p1", "2x8x8x1280 1280x3x3 p1"),
    *("2x32x32x320 640x1x1", "2x16x16x2560 1280x1x1", "2x64x64x320 4x3x3 p1"),
)
"""Of latent diffusion at 512 by 512, for a conditional and an unconditional image."""

_VAE_DECODER: Final = (
    *("1x64x64x4 512x3x3 p1", "1x64x64x512 512x3x3 p1", "1x128x128x512 512x3x3 p1", "1x256x256x512 256x3x3 p1"),
    *("1x256x256x256 256x3x3 p1", "1x512x512x256 128x3x3 p1", "1x512x512x128 128x3x3 p1", "1x512x512x128 3x3x3 p1"),
)
"""From latents of 64 by 64 to an image of 512 by 512."""

_CONVNEXT: Final = (
    *("32x224x224x3 96x4x4 s4", "32x56x56x96 192x2x2 s2", "32x28x28x192 384x2x2 s2", "32x14x14x384 768x2x2 s2"),
    *("32x56x56x96 384x1x1", "32x28x28x768 192x1x1", "32x14x14x384 1536x1x1", "32x7x7x3072 768x1x1"),
)
"""Those that are not depthwise: patches, downsampling, and the two products of a block."""

_FUSED: Final = (
    *("32x56x56x64 64x3x3 p1", "32x28x28x128 128x3x3 p1", "32x14x14x256 256x3x3 p1", "32x7x7x512 512x3x3 p1"),
    *("32x56x56x64 256x1x1", "32x28x28x128 512x1x1", "32x14x14x256 1024x1x1", "32x7x7x512 2048x1x1"),
    *("2x64x64x320 320x3x3 p1", "2x32x32x640 640x3x3 p1", "2x16x16x1280 1280x3x3 p1", "1x128x128x512 512x3x3 p1"),
)
"""Of these networks: the middle and the last of each bottleneck, and blocks of the UNet and the decoder."""

_TRAINED: Final = (
    *("32x56x56x64 64x3x3 p1", "32x28x28x128 128x3x3 p1", "32x14x14x256 256x3x3 p1", "32x7x7x512 512x3x3 p1"),
    *("32x28x28x256 256x3x3 s2 p1", "32x56x56x64 256x1x1", "32x28x28x512 128x1x1", "32x14x14x1024 256x1x1"),
    *("2x64x64x320 320x3x3 p1", "2x32x32x640 640x3x3 p1"),
)
"""Of ResNet-50 and the UNet: 3x3 filters without and with a stride, and 1x1 ones."""

LAYERS: Final = tuple(map(ConvWorkload.parse, (*_RESNET50, *_UNET, *_VAE_DECODER, *_CONVNEXT)))
"""All of them, bf16 in and out."""

FUSED_LAYERS: Final = tuple(
    replace(ConvWorkload.parse(shape), bias=True, activation="relu", residual=residual)
    for shape in _FUSED
    for residual in (False, True)
)
"""With a bias and a relu behind, and with what a block goes around by added before it."""

GRADIENTS: Final = tuple(
    GradientWorkload(ConvWorkload.parse(shape), of) for shape in _TRAINED for of in ("images", "filters")
)
"""Both gradients of each."""
