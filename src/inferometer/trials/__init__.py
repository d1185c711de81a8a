"""One file per kind of trial, and what a trial is."""
