"""A report as one HTML page, with its charts."""
