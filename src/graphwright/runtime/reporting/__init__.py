"""What people read: of a capture, of a module, of an error.

Read printing.py first.

    capture_report.py  what a capture did, as data and as text
    folding.py         generated code with its repetitions folded
    showing.py         a captured module in a line, as text, and as a notebook shows it
    printing.py        captured modules as text
    failures.py        what is said about an error that comes out of generated code
"""
