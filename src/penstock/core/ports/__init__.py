"""Interfaces that core needs from doors and storage."""
