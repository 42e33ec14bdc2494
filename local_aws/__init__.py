"""A local AWS emulator: tests a deploy before it costs anything."""
