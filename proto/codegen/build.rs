//! Compiles the `.proto` files into `OUT_DIR`, with a compiler that is a crate too. It runs in a build script because
//! the generators' dependencies are then compiled once, without optimisation, with those of the derive macros.

use std::path::Path;

use tonic_prost_build::Builder;

/// Rare and large fields, which would otherwise make every request and every response large.
const BOXED: [&str; 13] = [
    "Request.body.handshake",
    "Request.body.step",
    "Request.body.write_records",
    "Request.body.set_topology",
    "Request.body.receive_slots",
    "Request.body.accept",
    "Response.body.handshake_reply",
    "Response.body.status",
    "Response.body.step_result",
    "Response.body.snapshot_begun",
    "Response.body.snapshot_piece",
    "Refusal.map",
    "SlotsMoved.map",
];

fn main() -> Result<(), Box<dyn std::error::Error>> {
    for directory in ["disk", "fleet", "gateway", "store"] {
        println!("cargo:rerun-if-changed=../{directory}");
    }
    let files = protox::compile(
        ["disk/v1/disk.proto", "fleet/v1/fleet.proto", "gateway/v1/gateway.proto", "store/v1/store.proto"],
        [".."],
    )?;
    // For clients that ask the server which services it has.
    let public = protox::Compiler::new([".."])?
        .include_source_info(true)
        .include_imports(true)
        .open_file("gateway/v1/gateway.proto")?
        .encode_file_descriptor_set();
    let out = std::env::var("OUT_DIR")?;
    std::fs::write(Path::new(&out).join("gateway.v1.bin"), public)?;
    // Arguments and replies stay slices of the message they came in.
    let config = tonic_prost_build::configure().bytes(".").codec_path("crate::bounded::BoundedCodec");
    let boxed = |config: Builder, field: &&str| config.boxed(format!(".moonshard.store.v1.{field}"));
    BOXED.iter().fold(config, boxed).compile_fds(files)?;
    Ok(())
}
