//! Compiles the .proto files, with a compiler that is a crate too.

use std::path::Path;

use tonic_prost_build::Builder;

/// What is rare and large would make every request and every answer large.
const BOXED: [&str; 11] = [
    "Request.body.handshake",
    "Request.body.step",
    "Request.body.write_records",
    "Request.body.set_topology",
    "Request.body.receive_slots",
    "Request.body.accept",
    "Response.body.handshake_reply",
    "Response.body.status",
    "Response.body.step_result",
    "Refusal.map",
    "SlotsMoved.map",
];

fn main() -> Result<(), Box<dyn std::error::Error>> {
    println!("cargo:rerun-if-changed=fleet");
    println!("cargo:rerun-if-changed=gateway");
    println!("cargo:rerun-if-changed=store");
    let files =
        protox::compile(["fleet/v1/fleet.proto", "gateway/v1/gateway.proto", "store/v1/store.proto"], ["."])?;
    // What clients may ask the server for.
    let public = protox::Compiler::new(["."])?
        .include_source_info(true)
        .include_imports(true)
        .open_file("gateway/v1/gateway.proto")?
        .encode_file_descriptor_set();
    let out = std::env::var("OUT_DIR")?;
    std::fs::write(Path::new(&out).join("gateway.v1.bin"), public)?;
    // Arguments and replies stay slices of the message they came in.
    let config = tonic_prost_build::configure().bytes(".");
    let boxed = |config: Builder, field: &&str| config.boxed(format!(".moonshard.store.v1.{field}"));
    BOXED.iter().fold(config, boxed).compile_fds(files)?;
    Ok(())
}
