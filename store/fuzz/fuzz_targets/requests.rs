//! What a gateway or another node may send to a store node.

#![no_main]
// Each target uses its part of what holds.
#![allow(dead_code)]

mod property;

libfuzzer_sys::fuzz_target!(|input: &[u8]| property::requests(input));
