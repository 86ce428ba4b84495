//! Whether a call may be run: every check between a request and its command.

mod checks;
mod declared;
mod limits;
mod origin;
mod parse;
mod permission;
mod replica;
mod resources;
mod scripts;
mod sessions;

pub use checks::{Admitted, admit, admit_in_script, admit_queued};
pub use limits::{count_later, grant, script_permit};
pub use origin::{Caller, Declared, NotAdmitted, Origin, Refuser, ScriptMemory, ScriptOrigin};
pub use parse::{Parsed, Recent, full_name, number_of, parse, shown_name};
pub use permission::note_refusal;
pub use replica::refuse_writing_script;
pub use scripts::{NOT_IN_SCRIPT, is_for_scripts};
pub use sessions::is_queued;
