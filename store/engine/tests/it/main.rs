//! Tests of the engine through what it offers, most of them with random calls and values.

mod changes;
mod fuzz_seeds;
mod rdb;
