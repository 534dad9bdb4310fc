"""The main program of a spawned worker: makes torch mean weft, then loads the user's main."""

__import__("weft.compat.main").compat.main.load_in_worker(globals())
