//! Scripts, their flags and libraries of functions as records beside the data: what was loaded outlives the process.

use crate::functions::Libraries;
use crate::options::Options;
use crate::scripts::Known;
use crate::server::Server;

/// Before a script's digest: its text.
pub const SCRIPT: &[u8] = b"script/";
/// Before a script's digest: what SCRIPT FLAGS said of it, as words.
pub const FLAGS: &[u8] = b"flags/";
/// Before a library's name: its text.
pub const LIBRARY: &[u8] = b"library/";

/// Keeps a script that was loaded.
pub fn keep_script(server: &Server, known: &Known) {
    server.node.put_record(&[SCRIPT, known.sha.as_bytes()].concat(), &known.text());
}

/// Keeps what SCRIPT FLAGS said of a script.
pub fn keep_flags(server: &Server, sha: &[u8], said: Options) {
    let name = [FLAGS, &*sha.to_ascii_lowercase()].concat();
    server.node.put_record(&name, said.words().join(" ").as_bytes());
}

/// Forgets scripts and their flags.
pub fn forget_scripts(server: &Server) {
    server.node.set_records(SCRIPT, []);
    server.node.set_records(FLAGS, []);
}

/// Keeps just these libraries.
pub fn keep_libraries(server: &Server, libraries: &Libraries) {
    server
        .node
        .set_records(LIBRARY, libraries.all().map(|library| (library.name.as_bytes(), &*library.text)));
}
