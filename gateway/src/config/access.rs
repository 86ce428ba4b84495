//! Parameters that say who is let in.

use super::choice::{Choice, NewUserChannels};
use super::kind::{ParameterKind, Sort};
use super::parameter::{Fallback, Parameter};

/// The password of `default`.
pub const REQUIREPASS: Parameter = Parameter {
    name: "requirepass",
    kind: ParameterKind::Secret(|c| &c.requirepass),
    default: Fallback::Text(""),
    live: true,
    doc: "Password of the user default; empty means that none is required. There is no command-line flag for \
          it, because other users of the machine can see the flags of a process.",
};

/// Where it stands.
pub const REQUIREPASS_FILE: Parameter = Parameter {
    name: "requirepass-file",
    kind: ParameterKind::File(|c| &c.requirepass_file),
    default: Fallback::Text("none"),
    live: false,
    doc: "File whose first line is the value of requirepass.",
};

/// Where users stand.
pub const ACLFILE: Parameter = Parameter {
    name: "aclfile",
    kind: ParameterKind::File(|c| &c.aclfile),
    default: Fallback::Text("none"),
    live: false,
    doc: "File with users in the format of ACL SAVE. With none, users are stored with the data.",
};

/// What new users may hear.
pub const ACL_PUBSUB_DEFAULT: Parameter = Parameter {
    name: "acl-pubsub-default",
    kind: ParameterKind::Word(NewUserChannels::WORDS, |c| &c.acl_pubsub_default.place),
    default: Fallback::Text("resetchannels"),
    live: true,
    doc: "Channels that a new user may use: all or none.",
};

/// How much is remembered of refusals.
pub const ACLLOG_MAX_LEN: Parameter = Parameter {
    name: "acllog-max-len",
    kind: ParameterKind::Integer(0..=1_000_000, |c| &c.acllog_max_len),
    default: Fallback::Text("128"),
    live: true,
    doc: "Maximum number of entries in ACL LOG.",
};

/// What the log has about users.
pub const AUDIT_LOG: Parameter = Parameter {
    name: "audit-log",
    kind: ParameterKind::Words("admin|denied", |c| &c.audit_log),
    default: Fallback::Text("admin denied"),
    live: true,
    doc: "User actions that are logged: admin logs administrative calls that change something, denied logs \
          refused calls and failed logins.",
};

/// Whether clients on other machines are refused.
pub const PROTECTED_MODE: Parameter = Parameter {
    name: "protected-mode",
    kind: ParameterKind::Word(bool::WORDS, |c| &c.protected_mode.place),
    default: Fallback::Text("yes"),
    live: true,
    doc: "Whether connections from other machines are refused while the user default has no password.",
};

/// Where data may be sent.
pub const MIGRATE_HOSTS: Parameter = Parameter {
    name: "migrate-hosts",
    kind: ParameterKind::Names(Sort::Hosts, |c| &c.migrate_hosts),
    default: Fallback::Text("*"),
    live: false,
    doc: "Hosts that MIGRATE may connect to, as clients write them: a name allows no address. With none, MIGRATE is refused.",
};
