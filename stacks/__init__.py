"""The stacks: wiring of constructs, grants between them, outputs."""
