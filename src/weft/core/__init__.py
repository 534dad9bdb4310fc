"""The engine: dtypes, devices, tensors, graph nodes, and the dispatch of ops."""
