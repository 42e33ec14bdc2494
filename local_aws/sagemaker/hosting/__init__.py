"""Running endpoints: their lifecycle, their instances and the containers on them."""
