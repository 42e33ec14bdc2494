"""Lambda: moto stores the functions' configuration; this package stores their code and runs it."""
