//! Files that are there as a whole or not at all.

use std::fs::{self, File};
use std::io;
use std::path::{Path, PathBuf};

/// Puts what `write` writes in the place of a file: a reader, or a crash, finds the old file or the new one. Where
/// a link points to, the link stays, and what is no file, such as a pipe, is written to.
pub fn replace(file: &Path, write: impl FnOnce(&mut File) -> io::Result<()>) -> io::Result<()> {
    let file = fs::canonicalize(file).unwrap_or_else(|_| file.to_owned());
    let old = fs::metadata(&file).ok();
    if old.as_ref().is_some_and(|old| !old.is_file()) {
        return write(&mut File::options().write(true).open(&file)?);
    }
    let mut name = file.as_os_str().to_owned();
    name.push(format!(".{}.new", std::process::id()));
    let unfinished = PathBuf::from(name);
    let replace = || {
        let mut out = File::create(&unfinished)?;
        if let Some(old) = old {
            out.set_permissions(old.permissions())?;
        }
        write(&mut out)?;
        out.sync_all()?;
        fs::rename(&unfinished, &file)?;
        let dir = file.parent().filter(|dir| !dir.as_os_str().is_empty());
        File::open(dir.unwrap_or(Path::new(".")))?.sync_all()
    };
    let replaced = replace();
    if replaced.is_err() {
        // It may not be there.
        let _ = fs::remove_file(&unfinished);
    }
    replaced
}

#[cfg(test)]
mod tests {
    use std::io::Write as _;

    use super::*;

    #[test]
    fn what_fails_leaves_the_old_file() {
        let dir = std::env::temp_dir().join(format!("moonshard-replace-{}", std::process::id()));
        // Left by a process that was killed and had this one's number.
        let _ = fs::remove_dir_all(&dir);
        fs::create_dir_all(&dir).expect("a folder");
        let (file, link) = (dir.join("file"), dir.join("link"));
        fs::write(&file, "old").expect("written");
        std::os::unix::fs::symlink(&file, &link).expect("a link");
        let broken = replace(&file, |out| {
            out.write_all(b"half")?;
            Err(io::Error::other("the disk is gone"))
        });
        assert!(broken.is_err());
        assert_eq!(fs::read(&file).expect("a file"), b"old");
        replace(&link, |out| out.write_all(b"new")).expect("replaced");
        assert_eq!(fs::read(&file).expect("a file"), b"new");
        assert!(link.is_symlink());
        replace(&dir.join("other"), |out| out.write_all(b"new")).expect("made");
        replace(Path::new("/dev/null"), |out| out.write_all(b"new")).expect("written to");
        assert!(!fs::metadata("/dev/null").expect("it is there").is_file());
        assert_eq!(fs::read_dir(&dir).expect("a folder").count(), 3);
        fs::remove_dir_all(&dir).expect("removed");
    }
}
