"""The sections of a catalog, each with its rules; cohost/catalog.py puts them together."""
