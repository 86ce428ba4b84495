//! Calls of any commands, with any words: BITFIELD, GEOSEARCH, SORT, XADD and all the rest.

#![no_main]
// Each target uses its part of what holds.
#![allow(dead_code)]

mod property;

libfuzzer_sys::fuzz_target!(|input: &[u8]| property::calls(input));
