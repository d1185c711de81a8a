"""How results are shown: tables, charts, one HTML page, pictures. Everything comes from a summary."""
