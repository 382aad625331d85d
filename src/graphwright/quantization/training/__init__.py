"""Training with the rounding that integers will bring: quantization-aware training.

Read preparing.py first.

    preparing.py         values and weights rounded in a program that trains; and back, for `convert`
    prepared_module.py   what such a program can do besides: rounding on and off, norms frozen
    layers.py            layers whose weights are rounded in each call
    fake_quantize.py     values rounded in each call, in a range that is learned
    straight_through.py  rounding that lets gradients through
"""
