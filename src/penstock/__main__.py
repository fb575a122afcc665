"""Lets `python -m penstock` do what `penstock` does."""

from penstock.cli import main

if __name__ == "__main__":
    main()
