"""The main job from beginning to end on this machine: deploy, call, change, grow, roll and remove."""
