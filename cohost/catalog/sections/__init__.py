"""The sections of a catalog, each with the rules of its own values; `cohost.catalog.models` puts them together."""
