"""Judged answers as values, where they come from, and the rows that training takes."""
