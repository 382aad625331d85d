"""Code as a person would write it: the form of captures that know their source.

Read writer.py first.

    readable.py         graph -> the text of a function
    lines.py            statements as indented lines with comments
    body_writer.py      the writer: expressions inside one another, statements, bodies
    paths.py            dotted paths, with subscripts of containers
    callees.py          called modules, shown as look-ups and run as variables
    loops.py            `for` and `while`, with `break`, `return` and `else`
    branches.py         `if` statements, and branches that are expressions
    transforms.py       bodies that are given to functions
    try_statements.py   `try`, with what is done where it fails
    comprehensions.py   loops that are lists or `any`
    loop_headers.py     what a loop names for each item
    nesting.py          which operations are written inside which
    endings.py          what becomes of the values that a body ends with
    writer.py           the interface by which parts know the writer, and the statements that they make
    splits.py           the branch at the end of a body whose sides end it
    variables.py        which values share a variable
    f_strings.py        texts made of values
    unpacking.py        values that are taken apart right after they are made
    assignments.py      which assignments may be written one by one
    user_statements.py  what kind of statement the user's line is
    expressions.py      code that knows how tightly it binds, and its form
"""
