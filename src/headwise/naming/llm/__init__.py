"""Names by language models: an explainer that proposes one, a judge that applies one, and what they are asked."""
