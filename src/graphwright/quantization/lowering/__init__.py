"""Reference programs as programs of integers: what computes in them, measured against floats.

Read lower.py first.

    lower.py            the fastest form of a reference program, as it is
    finding.py          where quantized layers are in a program, with what belongs to them
    moving.py           operations on what integers stand for, as operations on the integers
    convolutions.py     the kernels of convolutions
    linears.py          the kernels of linear layers of integers, and of those whose weights alone are integers
    recurrent.py        the kernels of recurrent layers and cells
    rounding_alone.py   floats to integers and back where no layer does so, in fewer steps
    computing.py        what kernels share: sums, activations, and how results compare
    bytes_of_images.py  max pooling of bytes
    integers.py         where a program writes values as integers, and what these stand for
"""
