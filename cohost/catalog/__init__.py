"""The catalog: the YAML file that describes the endpoint and the models on it.

The modules `models` and `sections` define the allowed keys and values, and `checks` the rules between sections.
`cohost.catalog_file` reads a catalog's file.
"""
