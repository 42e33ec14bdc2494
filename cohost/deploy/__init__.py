"""The work on a stack: checks before a deploy, deploy, rollback, expiry, clean-up; also the local emulator's start."""
