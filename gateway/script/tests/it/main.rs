//! Tests of sandboxes with the Lua that is compiled in.

mod frames;
mod mutations;
mod slices;
mod surface;
