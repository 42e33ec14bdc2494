"""Reading of templates: their sections, intrinsic functions and parameters, and the schemas of resource types."""
