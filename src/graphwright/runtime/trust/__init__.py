"""What a program from a stranger may do: closed tables of operators, functions, methods and attributes.

Read verifier.py first.

    verifier.py   the nodes of a graph, checked before anything of it runs
    kinds.py      what class the value of a node is of, as far as that is known before the program runs
    names.py      the functions and classes that a file names
    library.py    the functions of Python's, of torch's and of ours that a program may call
    members.py    the methods and attributes of the values of a program, by class
    operators.py  the operators of torch, from torch's own registry
    methods.py    methods of modules that a graph calls, and pull-backs
    kernels.py    kernels of torch that write unchecked, with the check
    held.py       what modules of a file may call of what they hold, and what they have to hold
    followed.py   what the code of an allowed function reaches
    sizes.py      how large a value is when it is written out
    fields.py     reading an attribute that has to be data
"""
