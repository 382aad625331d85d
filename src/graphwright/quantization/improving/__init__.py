"""What lowers the error of a program that is converted, and what looks at it: each on calibration data.

Read watching.py first.

    equalizing.py   layers in a row with channels of like ranges
    smoothing.py    inputs that are wide in some channels
    ranging.py      the range of the least error in outputs
    rounding.py     weights, rounded
    correcting.py   what outputs are off by, put right in biases
    judging.py      what each layer alone loses
    watching.py     data run through a program again
"""
