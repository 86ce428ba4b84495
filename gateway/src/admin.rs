//! What an administrator starts from the command line: the program's arguments, its manual, and its tools.

pub mod cli;
pub mod health;
pub mod reference;
pub mod tools;
pub mod topology;
