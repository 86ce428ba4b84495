//! What leaves the process about it: metrics as text and over OTLP, and traces over OTLP.

pub mod metrics;
pub mod otel;
