//! What an administrator starts from the command line: the program's arguments, its manual, and its tools.

pub mod cli;
pub mod health;
pub mod offline_tools;
pub mod reference;
pub mod topology;
