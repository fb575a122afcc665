"""Makes reference pages from the code they describe, so that they cannot say something else.

Each module reads one part of the code off and answers with Markdown; `pages.py` knows which text goes where.
"""
