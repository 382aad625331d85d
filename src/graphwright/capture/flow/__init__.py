"""Control flow: branches, loops, `try` and forks, each as a region of the graph or as Python runs it.

A side or body is captured in a graph of its own, what it leaves in variables is joined, and one node is written for
all. Read branches.py first, then loops.py and loop_regions.py.

    branches.py         both sides of a branch, captured one after the other and joined
    joined_values.py    two values that become one, and which objects that chooses
    deciding.py         truths in converted functions: conditions, `and`, `or`, `not`, comparisons
    forked_runs.py      two runs that part at one question, as one graph
    tried_lines.py      which lines of functions run in a `try`
    watched.py          a part that becomes a region, run with what it may change watched
    loops.py            which loops are regions of the graph, and the others, run
    placed_items.py     what the iterators of loops go over, by place
    loop_regions.py     a loop whose length only a run knows: its body run until it is known what it carries
    loop_joins.py       what an iteration finds, joined with what it leaves
    loop_births.py      variables that have their first value in a loop
    loop_state.py       what a loop carries: values with slots in them for what changes
    attempts.py         `try` statements: as Python runs them, or as regions
    attempt_regions.py  the body of a `try` as a region, and the branch on its error
    plain_attempts.py   `try` statements as Python runs them, by functions of their parts
    kept_values.py      what variables hold where an error leaves a `try`
    caught_errors.py    the error that a handler gets, where only a run knows it
    shared_ends.py      what both ways of a fork do in the end, once, after it
    threaded_branches.py  a branch at the end that goes into the one which decides it
    unread_items.py     what a capture made and nothing reads, removed
    swallowing.py       contexts that may swallow an error, of which a graph cannot know
    nearest.py          reads on a way that the example does not take, with numbers that may be too large
"""
