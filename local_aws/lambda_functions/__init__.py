"""Lambda: moto keeps the functions' configuration, this package keeps their code and runs it."""
