//! The guest as machine code. Every start of a server compiles it, which takes longer than the rest of a start: the
//! hundreds of servers that tests start read it from a file instead.

use wasmtime::{Engine, Module};

/// Compiles the guest.
///
/// With debug assertions, and only then, `COMPILED_GUEST` in the environment names a directory: the guest is read from
/// there, and written if the engine finds none of its own.
pub fn guest(engine: &Engine) -> wasmtime::Result<Module> {
    #[cfg(debug_assertions)]
    if let Some(directory) = std::env::var_os("COMPILED_GUEST") {
        return cache::module(engine, guest_lua::LUA_WASM, directory.as_ref());
    }
    Module::new(engine, guest_lua::LUA_WASM)
}

#[cfg(debug_assertions)]
mod cache {
    use std::hash::{DefaultHasher, Hash, Hasher};
    use std::path::Path;
    use std::sync::atomic::{AtomicU32, Ordering};

    use wasmtime::{Engine, Module};

    /// A module from a directory, where it is put first if need be.
    pub fn module(engine: &Engine, wasm: &[u8], directory: &Path) -> wasmtime::Result<Module> {
        // Another Wasmtime, setting, processor or guest has another file.
        let mut hasher = DefaultHasher::new();
        engine.precompile_compatibility_hash().hash(&mut hasher);
        wasm.hash(&mut hasher);
        let file = directory.join(format!("{:016x}.cwasm", hasher.finish()));
        if !file.is_file() {
            write(&file, &Module::new(engine, wasm)?.serialize()?)?;
        }
        // SAFETY: the file is whole, as it gets its name when it has been written, and by its name it was made of this
        // module by an engine like this one. Nothing changes it later: another one replaces it, the mapped one remains. Who
        // may write there could as well replace this program, which is built beside it and never leaves the machine.
        unsafe { Module::deserialize_file(engine, &file) }
    }

    fn write(file: &Path, bytes: &[u8]) -> std::io::Result<()> {
        static NUMBER: AtomicU32 = AtomicU32::new(0);
        std::fs::create_dir_all(file.parent().unwrap_or(file))?;
        let number = NUMBER.fetch_add(1, Ordering::Relaxed);
        let new = file.with_extension(format!("{}-{number}", std::process::id()));
        std::fs::write(&new, bytes)?;
        std::fs::rename(&new, file)
    }

    #[cfg(test)]
    mod tests {
        use super::*;

        fn files(directory: &Path) -> Vec<std::path::PathBuf> {
            let entries = std::fs::read_dir(directory).expect("it was made");
            entries.map(|entry| entry.expect("an entry").path()).collect()
        }

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
            let directory =
                std::env::temp_dir().join(format!("moonshard-compiled-guest-{}", std::process::id()));
            let _ = std::fs::remove_dir_all(&directory);
            let mut config = wasmtime::Config::new();
            let engine = Engine::new(&config).unwrap();
            // The guest takes seconds to compile; nothing here depends on what the module does.
            let (wasm, other_wasm) = (with_export(b"a"), with_export(b"b"));
            let compiled = Module::new(&engine, &wasm).unwrap().serialize().unwrap();
            for _ in 0..2 {
                assert_eq!(module(&engine, &wasm, &directory).unwrap().serialize().unwrap(), compiled);
                let files = files(&directory);
                assert_eq!(files.len(), 1, "{files:?}");
                assert_eq!(std::fs::read(&files[0]).unwrap(), compiled);
            }
            // Another module has another file.
            assert_ne!(module(&engine, &other_wasm, &directory).unwrap().serialize().unwrap(), compiled);
            assert_eq!(files(&directory).len(), 2);
            // An engine with other settings could not run it.
            config.consume_fuel(true);
            let other = Engine::new(&config).unwrap();
            assert_ne!(module(&other, &wasm, &directory).unwrap().serialize().unwrap(), compiled);
            assert_eq!(files(&directory).len(), 3);
            std::fs::remove_dir_all(&directory).unwrap();
        }
    }
}
