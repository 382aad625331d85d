"""One question per file: what does this part of a graph library cost, compared with torch.fx?

In go the implementations and the node counts, out come lines of text and an entry in results/library.json.
Read build.py first.
"""
