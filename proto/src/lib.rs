//! How the engine's vocabulary looks on the wire between processes. The one process of today needs none of it.
