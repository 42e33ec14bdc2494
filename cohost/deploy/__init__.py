"""From preflight to clean-up: deploys with the cdk command, rollbacks, expiry, and the local AWS emulator."""
