//! Rules that hold for the sources themselves.

mod floor_plan;
mod supply;
mod tidy;
