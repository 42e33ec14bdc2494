"""Which backends can serve a model, and why not: from its architecture, its task and the table of images."""
