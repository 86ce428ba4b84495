//! Where the data of a server under test is: tests that hold for one process have to hold over store nodes.

use crate::TestServer;

/// Where the data is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Topology {
    /// In the process that serves clients.
    Local,
    /// On store nodes, whose gateway serves clients.
    Nodes,
}

/// Store nodes beside the gateway: enough for one in the middle that has neither the first nor the last slot.
const STORES: usize = 3;

impl Topology {
    /// Starts a server on a free port and waits until it is ready, with the store nodes it needs.
    pub fn start(self, flags: &[&str]) -> TestServer {
        match self {
            Topology::Local => TestServer::start(flags),
            Topology::Nodes => {
                TestServer::start_over((0..STORES).map(|_| TestServer::store(&[])).collect(), flags)
            }
        }
    }
}

/// Makes two tests of each of these functions, `local::NAME` and `nodes::NAME`: it is called with either [`Topology`].
#[macro_export]
macro_rules! over_nodes {
    ($($name:ident),+ $(,)?) => {
        mod local {
            $(#[test] fn $name() { super::$name($crate::Topology::Local); })+
        }

        mod nodes {
            $(#[test] fn $name() { super::$name($crate::Topology::Nodes); })+
        }
    };
}
