"""The catalog: the YAML file that names the endpoint and the models on it.

`models` and `sections` state what the file may say, `checks` which settings go together; `loader` reads a file.
"""
