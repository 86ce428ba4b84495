//! A folder for a test's data.

use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicU32, Ordering};

/// A folder that nobody else uses. It is removed when dropped, unless the test fails: then it says where it is.
pub struct TempDir(PathBuf);

impl TempDir {
    /// One whose name has this in it. It is not there yet.
    pub fn new(name: &str) -> TempDir {
        static NUMBER: AtomicU32 = AtomicU32::new(0);
        let number = NUMBER.fetch_add(1, Ordering::Relaxed);
        let dir =
            TempDir(std::env::temp_dir().join(format!("moonshard-{name}-{}-{number}", std::process::id())));
        // Left by a process that was killed and had this one's number.
        let _ = std::fs::remove_dir_all(dir.path());
        dir
    }

    /// The same, made.
    pub fn made(name: &str) -> TempDir {
        let dir = TempDir::new(name);
        std::fs::create_dir_all(dir.path()).expect("a folder");
        dir
    }

    /// Something in it, as an argument.
    pub fn child(&self, name: &str) -> String {
        self.0.join(name).to_str().expect("a path of letters").to_owned()
    }

    /// Where it is.
    pub fn path(&self) -> &Path {
        &self.0
    }

    /// The same as a flag's value.
    pub fn text(&self) -> &str {
        self.0.to_str().expect("a path of letters")
    }

    /// Copies all files to another folder.
    pub fn copy(&self, name: &str) -> TempDir {
        let copy = TempDir::new(name);
        for file in self.files() {
            let to = copy.0.join(file.strip_prefix(&self.0).expect("below it"));
            std::fs::create_dir_all(to.parent().expect("a folder")).expect("a new folder");
            std::fs::copy(&file, &to).expect("room for a copy");
        }
        copy
    }

    /// All files in it and below, sorted.
    pub fn files(&self) -> Vec<PathBuf> {
        let mut dirs = vec![self.0.clone()];
        let mut files = Vec::new();
        while let Some(dir) = dirs.pop() {
            for entry in std::fs::read_dir(dir).expect("a folder") {
                let path = entry.expect("an entry").path();
                if path.is_dir() { dirs.push(path) } else { files.push(path) }
            }
        }
        files.sort();
        files
    }

    /// Bytes that the file system has given to it, while others may add and remove files.
    pub fn disk_bytes(&self) -> u64 {
        let mut dirs = vec![self.0.clone()];
        let mut bytes = 0;
        while let Some(dir) = dirs.pop() {
            // Gone since it was listed.
            let Ok(entries) = std::fs::read_dir(dir) else { continue };
            for entry in entries.flatten() {
                match entry.metadata() {
                    Ok(data) if data.is_dir() => dirs.push(entry.path()),
                    Ok(data) => bytes += data.blocks() * 512,
                    Err(_) => {}
                }
            }
        }
        bytes
    }
}

impl Drop for TempDir {
    fn drop(&mut self) {
        if std::thread::panicking() {
            eprintln!("left for a look: {}", self.0.display());
        } else {
            // It may never have been made.
            let _ = std::fs::remove_dir_all(&self.0);
        }
    }
}
