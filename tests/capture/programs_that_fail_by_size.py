"""Programs that catch what fails for some sizes: numbers that cannot be computed, items that are not there."""

import contextlib
import math

import torch


def divides(x):
    try:
        y = 1 / (x.shape[0] - 3)
    except ZeroDivisionError:
        y = 7.0
    return x * y


def suppresses_division(x):
    y = x.sum()
    with contextlib.suppress(ZeroDivisionError):
        y = y + 1 / (x.shape[0] - 3)
    return y


def suppresses_missing_row(x):
    with contextlib.suppress(IndexError):
        return x[2]
    return x.sum()


def suppresses_among_contexts(x):
    y = x.sum()
    with torch.no_grad(), contextlib.suppress(IndexError):
        y = y + x[2]
    return y


def suppresses_around_contexts(x):
    y = x.sum()
    with contextlib.suppress(IndexError), torch.no_grad():
        y = y + x[2]
    return y


def suppresses_wrong_shape(x):
    with contextlib.suppress(RuntimeError):
        return x.view(2, -1)
    return x * 2


def overflows(x):
    try:
        return x * math.exp(x.shape[0] * 200)
    except OverflowError:
        return x * 9


def has_no_root(x):
    try:
        y = math.sqrt(x.shape[0] - 3)
    except ValueError:
        y = 9.0
    return x * y


def has_no_remainder(x):
    try:
        whole, rest = divmod(7, x.shape[0] - 3)
    except ZeroDivisionError:
        whole, rest = 9, 9
    return x * whole + rest


def has_no_item(x):
    try:
        return x * [1.0, 2.0, 3.0][x.shape[0]]
    except IndexError:
        return x * 9


def asks_the_text(x):
    try:
        y = 1 / (x.shape[0] - 3)
    except ZeroDivisionError as error:
        return x * len(str(error))
    return x * y


def divides_on_the_other_way(x):
    y = 1 / (x.shape[0] - 3) if x.shape[0] != 3 else 8.0
    return x * y


def divides_in_a_loop(x):
    y = 0.0
    for i in range(x.shape[0]):
        try:
            y = y + 1 / (i - 2)
        except ZeroDivisionError:
            y = y + 100
    return x * y


def finds_nothing(x):
    try:
        y = max([i * 2 for i in range(x.shape[0] - 2)])
    except ValueError:
        y = 9
    return x + y


def divides_and_cleans_up(x):
    y = 1.0
    try:
        try:
            y = 1 / (x.shape[0] - 3)
        finally:
            x = x + 1
    except ZeroDivisionError:
        y = 4.0
    return x * y


def tries_smaller_places(x):
    for i in range(3):
        try:
            return x[3 - i]
        except IndexError:
            continue
    return x


def joins_what_a_loop_found(x):
    found = []
    for i in range(2, x.shape[0]):
        found.append(x[i:])
    try:
        return torch.cat(found)
    except (RuntimeError, ValueError):
        return x


def has_no_letter(x):
    try:
        letter = "abcd"[x.shape[0]]
    except IndexError:
        letter = "zz"
    return x * len(letter)


def has_no_dimension(x):
    try:
        return x.sum(x.shape[0] - 2)
    except IndexError:
        return x.sum() * 3


class Counts:
    def __init__(self):
        self.count, self.rows = 0, []

    def add(self, row):
        self.count += 1
        self.rows.append(row)


def fills_an_object(x):
    found = Counts()
    try:
        for i in range(4):
            found.add(x[i])
    except IndexError:
        found.count = -1
    return torch.tensor([found.count, len(found.rows)])


def fills_a_list(x):
    rows = []
    try:
        for i in range(4):
            rows.append(x[i])
    except IndexError:
        rows.append(x.sum())
    return torch.stack(rows)


RIGHT = [
    divides, suppresses_division, suppresses_missing_row, suppresses_among_contexts, suppresses_around_contexts,
    suppresses_wrong_shape, overflows, has_no_root, has_no_remainder, has_no_item, asks_the_text,
    divides_on_the_other_way, divides_in_a_loop, finds_nothing, divides_and_cleans_up, tries_smaller_places,
    joins_what_a_loop_found, fills_an_object, fills_a_list,
    has_no_letter, has_no_dimension,
]  # fmt: skip
GUARDED = {  # sizes of examples that are guarded: of those that fail
    suppresses_missing_row: (2,), suppresses_among_contexts: (2,), suppresses_around_contexts: (2,),
    suppresses_wrong_shape: (3, 5), tries_smaller_places: (2, 3), joins_what_a_loop_found: (2,),
    has_no_dimension: (3, 4),
    fills_an_object: (2, 3, 4), fills_a_list: (2, 3, 4),  # what they leave has another form
}  # fmt: skip
