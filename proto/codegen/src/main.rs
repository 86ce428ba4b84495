//! Writes what the build script generated from the `.proto` files into `proto/src/generated`. The result is checked in,
//! so that a build of the server does not compile the generators.

use std::collections::BTreeMap;
use std::fs;
use std::io;
use std::path::Path;

/// Where the checked-in code is.
const CHECKED_IN: &str = concat!(env!("CARGO_MANIFEST_DIR"), "/../src/generated");

/// The files of a directory by name.
fn files(directory: &str) -> io::Result<BTreeMap<String, Vec<u8>>> {
    let read = |entry: io::Result<fs::DirEntry>| {
        let entry = entry?;
        Ok((entry.file_name().to_string_lossy().into_owned(), fs::read(entry.path())?))
    };
    fs::read_dir(directory)?.map(read).collect()
}

fn main() -> io::Result<()> {
    for name in files(CHECKED_IN)?.keys() {
        fs::remove_file(Path::new(CHECKED_IN).join(name))?;
    }
    for (name, content) in files(env!("OUT_DIR"))? {
        fs::write(Path::new(CHECKED_IN).join(name), content)?;
    }
    Ok(())
}

#[test]
fn the_checked_in_code_is_what_the_proto_files_generate() {
    let (generated, checked_in) = (files(env!("OUT_DIR")).unwrap(), files(CHECKED_IN).unwrap());
    assert!(generated.len() > 3, "{:?}", generated.keys());
    let names: Vec<_> = generated.keys().chain(checked_in.keys()).collect();
    let stale = names.into_iter().find(|name| generated.get(*name) != checked_in.get(*name));
    assert_eq!(stale, None, "proto/src/generated differs from the .proto files: run `make proto`");
}
