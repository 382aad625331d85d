"""Several operations become one that does what they did together.

Read fuse_conv_batch_norm.py first.

    fuse_conv_batch_norm.py    batch norms folded into the layers before or behind them
    fold_batch_norm.py         the arithmetic of that, on tensors
    fuse_conv_relu.py          a ReLU joined to the layer before it, across an addition too
    fuse_activations.py        torch.ao's fused modules: activations, and in training batch norms
    fuse_conv_add.py           torch.ao's fused modules of residual blocks
    merge_parallel_linears.py  linear layers that read the same value as one, whose result is split
    recognize_norms.py         layer norms and RMS norms that are written out
    use_sdpa.py                attention that is written out
    attention_plan.py          whether the one operation for attention can do what a match does
"""
