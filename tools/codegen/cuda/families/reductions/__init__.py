"""Loops that reduce or scan: rows by groups of threads, on chip or over many blocks; columns."""
