"""Templates as they are read: their sections, functions and parameters, and the schemas of resource types."""
