"""What can go wrong in a deploy and be seen before: account, quota, image, models, price (`cohost preflight`)."""
