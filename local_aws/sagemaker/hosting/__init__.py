"""The hosting of endpoints: their lifecycle, their instances and the containers on the instances."""
