"""Batch, layer, group and instance normalisation, softmax, dropout."""
