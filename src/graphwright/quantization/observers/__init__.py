"""What is learned of values: which range a grid is to cover.

Read observer.py first.

    by_name.py         the observer that a scheme names
    entropy.py         the range that keeps most of the distribution
    percentile.py      the range that holds most of the values
    histogram.py       the range of the least squared error
    range_search.py    the range of the least loss, for any loss
    bins.py            a histogram whose range grows with the values
    min_max.py         the range of all values, and that of an average batch
    weight_grid.py     the grid of a weight, all of whose values are known
    observer.py        what observers count, and which values they refuse
"""
