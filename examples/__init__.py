"""Example programs that use Penstock."""
