"""What happens when Python asks for a value that only a run has: a ladder of answers, a file for each rung.

`questions` goes down it: `know` what is asked, `stage` who asks so that the question becomes a branch, `fork`, `guard`
the example's answer, `outline` the function that asks, `refuse`.
"""
