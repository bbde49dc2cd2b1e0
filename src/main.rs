//! The `gavel` binary: reads the command line and does what it says.

use std::process::ExitCode;

#[global_allocator]
static ALLOCATOR: mimalloc::MiMalloc = mimalloc::MiMalloc;

fn main() -> ExitCode {
    gavel::cli::main()
}
