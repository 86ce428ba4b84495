//! Which tests of one program must not run at the same time. The harness runs as many as there are cores.

use std::sync::{PoisonError, RwLock, RwLockReadGuard, RwLockWriteGuard};

/// The disk: shared by tests that write much, exclusive for one that holds the server to how soon it has written.
static DISK: RwLock<()> = RwLock::new(());

/// For a test that writes much; as long as this lives, no test has the disk for itself.
pub fn disk() -> RwLockReadGuard<'static, ()> {
    // A test that has failed leaves nothing behind that another could see.
    DISK.read().unwrap_or_else(PoisonError::into_inner)
}

/// For a test that needs the disk for itself.
pub fn disk_alone() -> RwLockWriteGuard<'static, ()> {
    DISK.write().unwrap_or_else(PoisonError::into_inner)
}
