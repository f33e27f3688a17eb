"""Requests that run: the engine, streams of events, transcripts, results, statistics."""
