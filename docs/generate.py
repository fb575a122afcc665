"""Writes everything in the reference that can be read off the code; `make docs` runs it.

    python -m docs.generate

To change what it writes, change the docstrings, help texts and comments in the code.
"""

from docs.generating.pages import DOCS, write

if __name__ == "__main__":
    for page in write():
        print(f"written: {page.relative_to(DOCS.parent)}")
