"""The sections of a catalog, each with the rules for its own values; `cohost.catalog.models` puts them together."""
