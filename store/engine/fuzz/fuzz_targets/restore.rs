//! What RESTORE is given, by its checksum intact: listpacks, intsets, streams and all that Redis ever wrote.

#![no_main]
// Each target uses its part of what holds.
#![allow(dead_code)]

mod property;

libfuzzer_sys::fuzz_target!(|input: &[u8]| property::restore(input));
