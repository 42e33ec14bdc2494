"""Code that all emulated services share; it imports none of these services."""
