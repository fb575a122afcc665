"""What Streamlit runs for every browser.

It stands in a folder of its own: Streamlit takes a folder `pages` beside its script for pages of its own old
kind, and shows those, empty, to whoever opens a page by its address.
"""

from penstock.dashboard.app import main

if __name__ == "__main__":
    main()
