"""Script that Streamlit runs for every browser.

It lives in a folder of its own: Streamlit treats a folder `pages` beside its script as pages of its own older
kind and would serve those, empty.
"""

from penstock.dashboard.app import main

if __name__ == "__main__":
    main()
