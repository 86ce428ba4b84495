//! Parameters about the server that this one follows.

use super::cell::Address;
use super::choice::Choice;
use super::kind::{Form, ParameterKind, primary, words_of};
use super::parameter::{Fallback, INT_MAX, Parameter};
use super::values::Config;

/// Other names of parameters, in Redis before 5.0 and in Valkey, with the names that they stand for.
pub const ALIASES: &[(&str, &str)] =
    &[("slaveof", "replicaof"), ("primaryauth", "masterauth"), ("primaryuser", "masteruser")];

/// Which server it is.
pub const REPLICAOF: Parameter = Parameter {
    name: "replicaof",
    kind: ParameterKind::Text(Form::Primary, |c| &c.replicaof),
    default: Fallback::Text(""),
    live: false,
    doc: "Redis or Valkey server that this server follows as its replica, from its start on: its host and its port with a \
          blank between them. All data of this server is replaced. The command REPLICAOF changes it.",
};

/// Who this server is there.
pub const MASTERUSER: Parameter = Parameter {
    name: "masteruser",
    kind: ParameterKind::Text(Form::User, |c| &c.masteruser),
    default: Fallback::Text(""),
    live: true,
    doc: "User of the server in replicaof that masterauth is the password of, who needs +psync +replconf +ping; empty means the \
          user default. Also called primaryuser.",
};

/// The password.
pub const MASTERAUTH: Parameter = Parameter {
    name: "masterauth",
    kind: ParameterKind::Secret(|c| &c.masterauth),
    default: Fallback::Text(""),
    live: true,
    doc: "Password for the server in replicaof; empty means that none is sent. Also called primaryauth. There is no command-line \
          flag for it, because other users of the machine can see the flags of a process.",
};

/// Whether the connection is TLS.
pub const TLS_REPLICATION: Parameter = Parameter {
    name: "tls-replication",
    kind: ParameterKind::Word(bool::WORDS, |c| &c.tls_replication.place),
    default: Fallback::Text("no"),
    live: true,
    doc: "Whether the server in replicaof is connected to over TLS. Its certificate must be signed by an authority in \
          tls-ca-cert-file and name the host; tls-cert-file is shown to it.",
};

/// How long it may be silent.
pub const REPL_TIMEOUT: Parameter = Parameter {
    name: "repl-timeout",
    kind: ParameterKind::Integer(1..=INT_MAX, |c| &c.repl_timeout),
    default: Fallback::Text("60"),
    live: true,
    doc: "Seconds after which the server in replicaof is given up if it sends nothing; then it is connected to again.",
};

impl Config {
    /// The server to follow, if there is one.
    pub fn primary(&self) -> Option<Address> {
        primary(&self.replicaof.get()).flatten()
    }

    /// Makes this the server to follow, for CONFIG GET and CONFIG REWRITE.
    pub fn set_primary(&self, primary: Option<&Address>) {
        self.replicaof.set(primary.map_or(String::new(), words_of));
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_server_to_follow_is_two_words() {
        let config = Config::defaults();
        assert_eq!(config.primary(), None);
        for (text, wanted) in [
            ("redis.example 6379", Some("redis.example:6379")),
            ("  ::1   1 ", Some("[::1]:1")),
            ("", None),
            ("NO one", None),
        ] {
            REPLICAOF.kind.store(&config, REPLICAOF.kind.parse(text).expect(text));
            assert_eq!(config.primary().map(|address| address.to_string()).as_deref(), wanted, "{text}");
        }
        for text in ["one", "a b", "a 65536", "a -1", "a 1 2", "a\"b 1", "a/b 1"] {
            assert!(REPLICAOF.kind.parse(text).is_err(), "{text}");
        }
    }
}
