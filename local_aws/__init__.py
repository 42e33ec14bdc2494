"""A local AWS emulator, on which a deploy can be tested before it costs anything on AWS."""
