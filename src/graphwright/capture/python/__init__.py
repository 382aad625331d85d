"""What the code of a program calls, where Python itself would not tell: the runtime of converted functions.

For plain values it does what Python does, for values of the run what the capture knows. Read runtime.py first,
then calls.py.

    runtime.py                each name that conversion writes, and the function behind it
    statements.py             `assert`, `raise`, `try`, `with`, `for` and `while`
    calls.py                  calls: a table from what is called to what is done in its place
    cached_calls.py           functions behind a `functools` cache: computed anew, refused where that can be seen
    substitutes.py            what to call in place of other functions, as what they are says
    entering.py               a function's conversion in its place: bound, wrapped, a class
    class_questions.py        calls that ask what a value is: `isinstance(x, Tensor)`, `type(x)`
    number_calls.py           calls that want numbers: `int(x)`, `len(x)`, `math.sqrt(x)`
    iterables.py              calls that go over values: `list(x)`, `any(x)`, `zip(x, y)`, `sorted(x)`
    message_texts.py          the text of a message, which shows values of the run
    messages.py               `print`, `torch._assert`, `torch._check`
    own_texts.py              `str(x)` of objects whose classes say it
    gathering.py              `sum(f(x))`, where `f` may be a generator function
    membership.py             `item in values` and `left == right`
    displays.py               subscripts, displays and f-strings
    comprehensions.py         comprehensions, which are loops of the graph where only a run knows how long
    transforms.py             `torch.vmap(f)(x)`: one node, with what `f` does as its body
    transform_bodies.py       that body: the function, run once on stand-ins of what it would get
    transformed_functions.py  functions that transforms give back, and what is known of those that they are given
    higher_order.py           `torch.cond`, `torch.while_loop`: the Python that they stand for
    reached.py                functions that a function may call, and which of them ask what Python answers
    callers.py                calls that must be seen by what calls them, looked for on the stack
"""
