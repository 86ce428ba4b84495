//! Rules that hold for the sources themselves.

mod floor_plan;
mod imports;
mod links;
mod supply;
mod tidy;
