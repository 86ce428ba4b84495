//! Tests of the store through what it offers to gateways, and of its files.

mod decision_model;
mod disk;
mod eviction;
mod fuzz_seeds;
mod lanes;
mod transactions;
mod waiting;
