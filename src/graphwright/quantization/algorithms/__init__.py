"""Better weights, biases and scales for the same integers, as functions of tensors.

Read rounded.py first. A weight (out, in, ...) is a matrix (out, in * kernel) here, and what it multiplies are rows.

    gptq.py             rounding one input after another, each making up for those before
    adaround.py         rounding up or down, learned by descent
    awq.py              rounding inputs that are large more finely, by factors that are searched
    smoothquant.py      moving the range of inputs into the weights that they meet, as far as it helps
    equalization.py     giving layers in a row channels of like ranges
    bias_correction.py  taking from the bias what outputs are off by
    learned_steps.py    a scale as a parameter of training
    input_factors.py    factors that inputs are divided by and weights multiplied by
    rounded.py          a weight on a grid, and the error that it makes in outputs
    input_moments.py    what is summed up of a layer's inputs
    input_rows.py       the inputs of a layer as rows that its weight multiplies
"""
