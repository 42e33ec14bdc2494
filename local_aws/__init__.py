"""A local AWS emulator: a deploy can be tested on it before it costs anything on AWS."""
