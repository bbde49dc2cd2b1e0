//! The `gavel` binary: reads the command line and does what it says.

use std::process::ExitCode;

fn main() -> ExitCode {
    gavel::cli::main()
}
