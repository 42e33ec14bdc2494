"""The backends that can serve a model, and the reasons against the others, by architecture, task and image."""
