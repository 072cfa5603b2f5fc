"""Graph-to-graph passes and their pipelines. Must not know the frontend or the backend."""
