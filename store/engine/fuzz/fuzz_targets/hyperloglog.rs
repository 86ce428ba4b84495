//! Strings from outside that are taken for HyperLogLogs.

#![no_main]
// Each target uses its part of what holds.
#![allow(dead_code)]

mod property;

libfuzzer_sys::fuzz_target!(|input: &[u8]| property::hyperloglog(input));
