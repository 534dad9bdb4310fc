"""Native code below the ops: compiled loops, oneDNN, threads and memory. Knows arrays only."""
