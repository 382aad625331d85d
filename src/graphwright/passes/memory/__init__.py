"""Where values lie and for how long: in place or anew, kept or computed again, layout and precision.

Read use_in_place.py first.

    use_in_place.py             operations in place, on values that nobody needs any more
    remove_in_place.py          operations that give new values, for those in place
    functional_setitem.py       `x[index] = value` as operations that give a new value
    insert_checkpoints.py       activation checkpoints within a budget of memory
    checkpoint_segments.py      which stretches may be run again in backward
    propagate_channels_last.py  convolutions with their channels last
    use_mixed_precision.py      matrix products in low precision, the rest in float32
    precision_rules.py          which calls run in low precision, and which in full
"""
