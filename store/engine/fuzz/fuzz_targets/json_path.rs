//! Paths into JSON documents.

#![no_main]
// Each target uses its part of what holds.
#![allow(dead_code)]

mod property;

libfuzzer_sys::fuzz_target!(|input: &[u8]| property::json_path(input));
