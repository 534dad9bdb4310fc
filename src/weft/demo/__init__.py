"""``weft demo``: a convolutional network learns to read digits, and weft shows what it can do.

The files here are meant to be read as an example of a program that uses weft:

* ``program.py`` is the sequence of the demo,
* ``digits.py`` gets the data,
* ``network.py`` is the network, its training and its evaluation,
* ``acts.py`` edits the network in mid-training, explains a NaN, compares two runs, and compiles,
* ``report.py`` draws the pages of the report,
* ``terminal.py`` prints, with a progress bar where there is a terminal.
"""
