"""From the bytes of a file to a checked graph: FlatBuffers, the schema, metadata, sparse constants."""
