//! Compiles the protobuf form of agent definitions, in Rust alone: a build needs no `protoc`.

use std::error::Error;

const PROTO: &str = "proto/gemini/agent/v1/agent.proto";

fn main() -> Result<(), Box<dyn Error>> {
    println!("cargo::rerun-if-changed={PROTO}");
    println!("cargo::rerun-if-changed=build.rs");
    let files = protox::compile([PROTO], ["proto"])?;
    // Sorted, so that one definition is the same bytes each time.
    prost_build::Config::new().btree_map(["."]).compile_fds(files)?;
    Ok(())
}
