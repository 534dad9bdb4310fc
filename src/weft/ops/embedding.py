"""Embeddings, attention and distances."""
