//! The program. All of it is in the library, which is compiled while its dependencies are still being optimised.

use std::process::ExitCode;

fn main() -> ExitCode {
    moonshard::run()
}
