//! What a store node may answer a gateway.

#![no_main]
// Each target uses its part of what holds.
#![allow(dead_code)]

mod property;

libfuzzer_sys::fuzz_target!(|input: &[u8]| property::responses(input));
