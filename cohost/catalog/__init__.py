"""The catalog: the YAML file that describes the endpoint and the models on it.

The modules `models` and `sections` define the keys and values that the file may have, `checks` the rules between
sections; `cohost.catalog_file` reads a file.
"""
