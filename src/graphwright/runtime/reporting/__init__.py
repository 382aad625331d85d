"""What people read: of a capture, of a module, of an error.

Read printing.py first.

    capture_report.py  what a capture did, as data and as text
    printing.py        captured modules as text
    failures.py        what is said about an error that comes out of generated code
"""
