//! Every session command.

use super::{
    acl, client, cluster, connection, function, introspect, latency, lolwut, memory, migrate, module, multi,
    persistence, pubsub, replicaof, replication, script, server, sync, watch, watching,
};
use crate::server::SessionCommand;

/// All families of session commands.
pub static FAMILIES: &[&[SessionCommand]] = &[
    acl::COMMANDS,
    connection::COMMANDS,
    function::COMMANDS,
    client::COMMANDS,
    cluster::COMMANDS,
    introspect::COMMANDS,
    latency::COMMANDS,
    lolwut::COMMANDS,
    memory::COMMANDS,
    migrate::COMMANDS,
    module::COMMANDS,
    multi::COMMANDS,
    watch::COMMANDS,
    persistence::COMMANDS,
    pubsub::COMMANDS,
    replicaof::COMMANDS,
    replication::COMMANDS,
    script::COMMANDS,
    server::COMMANDS,
    sync::COMMANDS,
    watching::COMMANDS,
];

#[cfg(test)]
mod tests {
    use store_engine::spec::flags;

    use super::FAMILIES;
    use crate::server::Registry;
    use crate::telemetry::audit::{ALSO, LOOK};

    #[test]
    fn the_audit_names_commands_that_there_are() {
        let registry = Registry::new(FAMILIES);
        for (names, admin) in [(LOOK, true), (ALSO, false)] {
            for name in names {
                let number = (0..registry.count()).find(|number| registry.name_of(*number) == *name);
                let spec = registry.spec_of(number.unwrap_or_else(|| panic!("{name} is no command")));
                assert_eq!(spec.has(flags::ADMIN), admin, "{name}");
            }
        }
    }
}
