"""What the records mean: rows, ratios, verdicts and sentences. Pure, from records; no formatting of pages."""
