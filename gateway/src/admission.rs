//! Whether a call may be run: every check between a request and its command.

mod call;
mod limits;
mod permission;
mod resources;

pub use call::{
    Admitted, NOT_IN_SCRIPT, Origin, Recent, admit, admit_again, full_name, is_for_scripts, number_of,
    shown_name,
};
pub use limits::{count_later, grant, script_permit};
pub use permission::{NotAdmitted, Stage, note_refusal, refuse_to_session, refuse_without_permission};
pub use resources::{refuse_what_cannot_be_kept, refuse_when_full};
