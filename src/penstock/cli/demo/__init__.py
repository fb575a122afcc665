"""`penstock demo`: one plant, four doors, a lake and a proof; every number it prints is of the run itself."""

from penstock.cli.demo.command import demo

__all__ = ["demo"]
