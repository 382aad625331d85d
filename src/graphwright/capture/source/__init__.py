"""The user's source: files, trees, positions, and the way from a running frame to a line.

It knows nothing of captures. Read origins.py first.

    origins.py           from a running frame to a place in the user's source
    positions.py         where instructions stand in their source
    roles.py             what an instruction is for, by its place in the syntax tree: a message, a raise, an argument
    uses.py              what a function does with a value that it reads: takes an item, hands it on, asks
    sources.py           source files, parsed once
    definitions.py       the definition that running code was compiled from
    syntax.py            what statements hold and bind, and places for new ones
    code_table.py        what is known of code objects, as long as they live
    mentions.py          which global names, attributes and variables a function mentions, and whose code it is
    attribute_writes.py  where a class writes an attribute of its own instances, and a function a variable
    annotations.py       the annotations of a function's parameters, as values
    caches.py            functions behind a `functools` cache
"""
