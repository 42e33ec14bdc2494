"""The sections of a catalog, each with the checks of its own values; `cohost.catalog.models` combines the sections."""
