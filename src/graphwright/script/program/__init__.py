"""What is known of a program while it is compiled: its source, its values, the graphs written so far.

Read values.py first.

    context.py           what all parts of the compiler share, and the interface by which they call each other
    attributes.py        attributes of modules: constants, or variables, which the program writes
    attribute_writes.py  which attributes the methods of classes write
    frames.py            the functions that are being compiled, and the call of each that is under way
    surroundings.py      what a program reads outside of itself, which each call checks
    type_comments.py     types that comments declare, of parameters and of variables
    values.py            what an expression stands for
    fields.py            what constructors say of the attributes of objects
"""
