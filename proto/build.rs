//! Compiles the .proto files, with a compiler that is a crate too.

fn main() -> Result<(), Box<dyn std::error::Error>> {
    println!("cargo:rerun-if-changed=fleet");
    println!("cargo:rerun-if-changed=store");
    let files = protox::compile(["fleet/v1/fleet.proto", "store/v1/store.proto"], ["."])?;
    // Arguments and replies stay slices of the message they came in.
    tonic_prost_build::configure().bytes(".").compile_fds(files)?;
    Ok(())
}
