//! The guest as machine code. To compile it takes longer than the rest of a start, so a start reads it from a file if there is one
//! that was made by this program, of this guest, for this processor.

use std::fs::{self, File, OpenOptions};
use std::hash::{DefaultHasher, Hash, Hasher};
use std::io::{self, Write};
use std::os::unix::fs::{MetadataExt, OpenOptionsExt};
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicU32, Ordering};

use guest_lua::LUA_WASM;
use wasmtime::{Engine, Module};

/// The guest: from a file beside the program or in `../lib/moonshard`, as [`write`] makes it, else compiled now.
///
/// With debug assertions, and only then, `COMPILED_GUEST` in the environment names another directory, in which the file is made
/// if it is missing: tests start hundreds of servers. What is compiled elsewhere is then a copy of that file.
pub fn guest(engine: &Engine) -> wasmtime::Result<Module> {
    let program = std::env::current_exe().and_then(fs::canonicalize)?;
    let owner = fs::metadata(&program)?.uid();
    #[cfg(debug_assertions)]
    if let Some(directory) = std::env::var_os("COMPILED_GUEST") {
        let file = PathBuf::from(directory).join(file_name(engine, LUA_WASM));
        if !file.is_file() {
            write(engine, LUA_WASM, &file)?;
        }
        return read(engine, &file, owner);
    }
    let beside = program.parent().unwrap_or(&program);
    let files = [beside.to_owned(), beside.join("../lib/moonshard")]
        .map(|place| place.join(file_name(engine, LUA_WASM)));
    match files.iter().find_map(|file| read(engine, file, owner).ok()) {
        Some(guest) => Ok(guest),
        None => Module::new(engine, LUA_WASM),
    }
}

/// Compiles the guest into a directory, which is made if it does not exist, or beside the program, unless the file is there; returns
/// the file.
pub fn precompile(engine: &Engine, directory: Option<&Path>) -> wasmtime::Result<PathBuf> {
    let program = std::env::current_exe().and_then(fs::canonicalize)?;
    let directory = directory.or(program.parent()).unwrap_or(&program);
    let file = directory.join(file_name(engine, LUA_WASM));
    if read(engine, &file, fs::metadata(&program)?.uid()).is_err() {
        write(engine, LUA_WASM, &file)?;
    }
    Ok(file)
}

/// Another Wasmtime, setting, processor or guest has another file.
fn file_name(engine: &Engine, wasm: &[u8]) -> String {
    let mut hasher = DefaultHasher::new();
    engine.precompile_compatibility_hash().hash(&mut hasher);
    wasm.hash(&mut hasher);
    format!("moonshard-{:016x}.guest", hasher.finish())
}

/// Reads a file that belongs to the owner of the program, or to root, and that no other user can write.
fn read(engine: &Engine, file: &Path, owner: u32) -> wasmtime::Result<Module> {
    let file = File::open(file)?;
    let metadata = file.metadata()?;
    if ![owner, 0].contains(&metadata.uid()) || metadata.mode() & 0o022 != 0 {
        return Err(io::Error::from(io::ErrorKind::PermissionDenied).into());
    }
    // SAFETY: the file is whole, as it gets its name when it has been written, and by its name it was made of this module by an
    // engine like this one. Nothing changes it later: another one replaces it, the mapped one remains. Who else may write it
    // could as well replace this program.
    unsafe { Module::deserialize_open_file(engine, file) }
}

fn compiled(engine: &Engine, wasm: &[u8]) -> wasmtime::Result<Vec<u8>> {
    #[cfg(debug_assertions)]
    if let Some(directory) = std::env::var_os("COMPILED_GUEST")
        && let Ok(compiled) = fs::read(PathBuf::from(directory).join(file_name(engine, wasm)))
    {
        return Ok(compiled);
    }
    engine.precompile_module(wasm)
}

/// Compiles into a file, which is there as a whole or not at all.
fn write(engine: &Engine, wasm: &[u8], file: &Path) -> wasmtime::Result<()> {
    static NUMBER: AtomicU32 = AtomicU32::new(0);
    let compiled = compiled(engine, wasm)?;
    fs::create_dir_all(file.parent().unwrap_or(file))?;
    let number = NUMBER.fetch_add(1, Ordering::Relaxed);
    let new = file.with_extension(format!("{}-{number}", std::process::id()));
    let mut written = OpenOptions::new().write(true).create_new(true).mode(0o644).open(&new)?;
    written.write_all(&compiled)?;
    Ok(fs::rename(&new, file)?)
}

#[cfg(test)]
mod tests {
    use std::os::unix::fs::PermissionsExt;

    use super::*;

    /// A module that exports an empty function by a name of one letter.
    fn with_export(name: &[u8; 1]) -> Vec<u8> {
        [
            &b"\0asm\x01\0\0\0"[..],
            // One type, without parameters and results.
            b"\x01\x04\x01\x60\0\0",
            // One function, of this type.
            b"\x03\x02\x01\0",
            b"\x07\x05\x01\x01",
            name,
            b"\0\0",
            // Its body: no locals, and its end.
            b"\x0a\x04\x01\x02\0\x0b",
        ]
        .concat()
    }

    #[test]
    fn what_is_read_is_what_was_compiled() {
        let name = format!("moonshard-compiled-guest-{}", std::process::id());
        let directory = std::env::temp_dir().join(name).join("made");
        let mut config = wasmtime::Config::new();
        let engine = Engine::new(&config).unwrap();
        // The guest takes seconds to compile; nothing here depends on what the module does.
        let (wasm, other_wasm) = (with_export(b"a"), with_export(b"b"));
        let file = directory.join(file_name(&engine, &wasm));
        write(&engine, &wasm, &file).unwrap();
        let owner = fs::metadata(&file).unwrap().uid();
        let compiled = Module::new(&engine, &wasm).unwrap().serialize().unwrap();
        assert_eq!(read(&engine, &file, owner).unwrap().serialize().unwrap(), compiled);
        assert_eq!(fs::read_dir(&directory).unwrap().count(), 1);
        // An engine with other settings could not run it.
        config.consume_fuel(true);
        let other = Engine::new(&config).unwrap();
        assert_ne!(file_name(&engine, &other_wasm), file_name(&engine, &wasm));
        assert_ne!(file_name(&other, &wasm), file_name(&engine, &wasm));
        assert!(read(&other, &file, owner).is_err());
        // Another user could have written it.
        for mode in [0o664, 0o646] {
            fs::set_permissions(&file, fs::Permissions::from_mode(mode)).unwrap();
            assert!(read(&engine, &file, owner).is_err());
        }
        fs::remove_dir_all(directory.parent().unwrap()).unwrap();
    }
}
