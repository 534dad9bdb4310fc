"""Work on graphs as a whole."""
