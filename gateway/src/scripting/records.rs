//! Scripts, their flags, libraries of functions and users as records beside the data: what was loaded outlives the process,
//! and other gateways of the same nodes know it too.

use std::sync::Arc;

use store::Store;
use store_engine::CommandError;

use crate::scripts::cache::{sha_of, spelled};
use crate::scripts::functions::{Libraries, Library};
use crate::scripts::options::Options;

/// Before a script's digest: its text.
pub const SCRIPT: &[u8] = b"script/";
/// Before a script's digest: what SCRIPT FLAGS said of it, as words.
pub const FLAGS: &[u8] = b"flags/";
/// Before a library's name: its text.
pub const LIBRARY: &[u8] = b"library/";

/// Before a user's name: its rules.
pub const USER: &[u8] = b"user/";

/// Keeps a script that was loaded.
pub async fn keep_script(store: &Store, text: &[u8]) -> Result<(), CommandError> {
    store.put_record(SCRIPT, spelled(&sha_of(text)).as_bytes(), text).await
}

/// Keeps what SCRIPT FLAGS said of a script.
pub async fn keep_flags(store: &Store, sha: &[u8], said: Options) -> Result<(), CommandError> {
    store.put_record(FLAGS, &sha.to_ascii_lowercase(), said.words().join(" ").as_bytes()).await
}

/// Forgets scripts and their flags.
pub async fn forget_scripts(store: &Store) -> Result<(), CommandError> {
    store.set_records(SCRIPT, Vec::new()).await?;
    store.set_records(FLAGS, Vec::new()).await
}

/// Keeps the libraries as they have become.
pub async fn keep_libraries(
    store: &Store,
    before: &Libraries,
    after: &Libraries,
) -> Result<(), CommandError> {
    let is_in = |libraries: &Libraries, library: &Library| {
        libraries.all().any(|held| held.name == library.name && held.text == library.text)
    };
    let news = after.all().filter(|library| !is_in(before, library));
    let record = |library: &Arc<Library>| (library.name.as_bytes().to_vec(), library.text.to_vec());
    let gone = before.all().filter(|library| !after.has(&library.name));
    let gone = gone.map(|library| library.name.as_bytes().to_vec()).collect();
    store.change_records(LIBRARY, news.map(record).collect(), gone).await
}
