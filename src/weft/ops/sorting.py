"""Sorting, searching, unique values, quantiles, histograms."""
