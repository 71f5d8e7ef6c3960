"""The only room that knows transformers: load a model, capture and edit its queries and keys, split its stream."""
