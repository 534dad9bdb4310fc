"""Speed against torch: both in one process, in turns, the best of several, as ratios."""
