"""Where arrays get their memory, and how they are laid out in it."""
