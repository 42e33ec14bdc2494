"""Endpoints at work: their life, their instances and the containers on them."""
