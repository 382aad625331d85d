"""Kinds of captured modules beside the plain one, and edits of any that can be taken back.

Read captured.py first.

    captured.py     what a capture returns: the program's own class, tree and state
    nested.py       modules inside a captured one that are captured modules themselves
    parts.py        modules of parts of programs, with the names of the whole
    transaction.py  edits that can be taken back
    forms.py        code in another form than the graph, with the program as it stands beside it
    lazy.py         torch.fx's lazily compiled GraphModule
    loose_parts.py  modules from attributes alone, or from code alone
"""
