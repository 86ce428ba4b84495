//! The data of a process that was a node without replicas, which becomes that of its group.

use std::fs::{self, File};
use std::path::Path;

use super::settings::{group_dir, replicas_dir};
use crate::journal::{DiskError, is_of_database};
use crate::replication::Groups;

/// Where the files are put first: the group has all of them, or none.
const UNFINISHED: &str = "adopting";

/// Moves the data of the node that this process was to the directory of its group, unless that was done.
pub(super) fn take_over(dir: &Path, groups: &Groups, me: u64) -> Result<(), DiskError> {
    let Some(group) = groups.adopted_by(me) else { return Ok(()) };
    let (to, unfinished) = (group_dir(dir, group.id), replicas_dir(dir).join(UNFINISHED));
    if to.exists() {
        return Ok(());
    }
    fs::create_dir_all(&unfinished).map_err(DiskError::io("create", &unfinished))?;
    for entry in fs::read_dir(dir).map_err(DiskError::io("read", dir))? {
        let entry = entry.map_err(DiskError::io("read", dir))?;
        if is_of_database(&entry.file_name()) {
            let from = entry.path();
            fs::rename(&from, unfinished.join(entry.file_name())).map_err(DiskError::io("rename", &from))?;
        }
    }
    for changed in [dir, &unfinished] {
        sync(changed)?;
    }
    fs::rename(&unfinished, &to).map_err(DiskError::io("rename", &unfinished))?;
    sync(&replicas_dir(dir))
}

fn sync(dir: &Path) -> Result<(), DiskError> {
    File::open(dir).and_then(|dir| dir.sync_all()).map_err(DiskError::io("flush", dir))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_interrupted_move_is_finished() {
        let dir = std::env::temp_dir().join(format!("moonshard-adopts-{}", std::process::id()));
        let groups = Groups::adopt(7, &["one:1".to_owned(), "two:1".to_owned()]).expect("two addresses");
        let unfinished = replicas_dir(&dir).join(UNFINISHED);
        // One file was moved, one was not.
        fs::create_dir_all(&unfinished)
            .and_then(|()| fs::create_dir_all(dir.join("sled")))
            .expect("there is room");
        for file in
            [unfinished.join("flushed"), dir.join("sled/log"), dir.join("lock"), dir.join("users.acl")]
        {
            fs::write(file, "data").expect("there is room");
        }
        for _ in 0..2 {
            take_over(&dir, &groups, 2).expect("it works");
            let to = replicas_dir(&dir).join("g1");
            assert!(to.join("flushed").exists() && to.join("sled/log").exists() && !unfinished.exists());
            assert!(
                dir.join("lock").exists() && dir.join("users.acl").exists() && !dir.join("sled").exists()
            );
        }
        fs::remove_dir_all(dir).expect("it is there");
    }
}
