"""The life of a stack: checks before a deploy, deploy with `cdk`, rollback, expiry, clean-up; start of the emulator."""
