//! The code of the protobuf form is generated from its `.proto` file. It is part of the source, so that a build needs no
//! compiler for it.

use std::path::Path;
use std::{env, fs};

/// With `UPDATE=1` in the environment, the code is written instead of compared.
#[test]
fn the_code_of_the_protobuf_form_is_what_its_proto_file_generates() {
    let root = Path::new(env!("CARGO_MANIFEST_DIR"));
    let code = root.join("crates/gavel-core/src/domain/definition/proto/message.rs");
    let out = tempfile::tempdir().unwrap();
    let files = protox::compile([root.join("proto/gemini/agent/v1/agent.proto")], [root.join("proto")]).unwrap();
    // Sorted maps give one definition the same bytes each time.
    let mut generator = prost_build::Config::new();
    generator
        .btree_map(["."])
        .message_attribute(
            ".",
            "#[derive(::serde::Serialize, ::serde::Deserialize)]\n#[serde(default)]",
        )
        .field_attribute(
            "temperature",
            "#[serde(alias = \"temp\", serialize_with = \"super::number\")]",
        )
        .field_attribute("top_p", "#[serde(serialize_with = \"super::number\")]")
        .field_attribute("approval", "#[serde(with = \"super::approval\")]")
        .field_attribute("flow_type", "#[serde(with = \"super::flow_type\")]")
        .field_attribute("provider", "#[serde(with = \"super::provider\")]")
        .field_attribute("timeout_seconds", "#[serde(rename = \"timeout\")]")
        .out_dir(out.path())
        .compile_fds(files)
        .unwrap();
    let generated = fs::read_to_string(out.path().join("gemini.agent.v1.rs")).unwrap();
    if env::var_os("UPDATE").is_some() {
        fs::write(&code, &generated).unwrap();
    }
    let current = fs::read_to_string(&code).unwrap();
    assert!(
        current == generated,
        "{} is not what the .proto file generates. Run this test with UPDATE=1, and commit the file",
        code.display()
    );
}
